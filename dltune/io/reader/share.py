"""Which numbers of the sequence are a rank's: strided sharding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dltune.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Share:
    """The part of `rank` of `size`: `batch` records in each iteration, in runs of `run`.

    All ranks together take size * batch consecutive numbers in an iteration. With run = batch each
    rank takes its part of them in one piece (the thesis, chapter 3.1.1), with run = 1 every
    size-th one (Caffe's own data layer). Raises UsageError for what cannot be.
    """

    rank: int
    size: int
    batch: int
    run: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"batch must be at least 1, got {self.batch}")
        if not 0 <= self.rank < self.size:
            raise UsageError(f"rank must be at least 0 and below {self.size}, got {self.rank}")
        if self.run < 1 or self.batch % self.run:
            raise UsageError(
                f"a batch of {self.batch} records cannot be taken in runs of {self.run}",
                remedy="choose a run that divides the batch",
            )

    def numbers(self, first: int, iterations: int) -> NDArray[np.int64]:
        """(iterations, batch): the rank's numbers in the iterations from `first` on."""
        import numpy as np

        record = np.arange(self.batch)
        within = (record // self.run * self.size + self.rank) * self.run + record % self.run
        iteration = np.arange(first, first + iterations)
        return iteration[:, None] * (self.size * self.batch) + within[None, :]
