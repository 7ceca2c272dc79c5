"""The order of records: a circular sequence over the whole database, and which of its numbers are a
rank's: strided sharding.

Number s of the sequence is record s mod n, or, shuffled, place s mod n of the permutation of epoch
s div n. LMDB's readers go on with the first record after the last one, so that a block of records
is always full (the thesis, chapter 5.2.2).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dltune.base.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Order(Protocol):
    """A circular sequence of the positions of `records` records."""

    @property
    def records(self) -> int: ...

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions at these numbers of the sequence, all at least 0."""
        ...


@dataclass(frozen=True)
class Sequential:
    """In the database's own order of keys."""

    records: int

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers % self.records


@dataclass(frozen=True)
class Shuffled:
    """Each epoch in a random order of its own, the same on all ranks for the same seed."""

    records: int
    seed: int
    _epochs: dict[int, NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        import numpy as np

        epochs, places = np.divmod(numbers, self.records)
        found = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            found[of_epoch] = self._permutation(epoch)[places[of_epoch]]
        return found

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        import numpy as np

        known = self._epochs.get(epoch)
        if known is None:
            known = np.random.default_rng((self.seed, epoch)).permutation(self.records)
            while len(self._epochs) >= 2:  # this epoch's and the epoch read ahead
                self._epochs.pop(next(iter(self._epochs)), None)
            self._epochs[epoch] = known
        return known


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

    @classmethod
    def of(cls, rank: int | None, size: int | None, batch: int, run: int | None) -> Share:
        """`rank` of `size`: None takes the launcher's; `run`: None is the whole batch."""
        from dltune.job.rank_layout import Rank, world

        if (rank is None) != (size is None):
            raise UsageError("only one of rank and size is given", remedy="give both or neither")
        here = world(os.environ) if rank is None or size is None else Rank(rank, size)
        return cls(here.rank, here.size, batch, batch if run is None else run)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"batch must be at least 1, got {self.batch}", remedy=None)
        if not 0 <= self.rank < self.size:
            raise UsageError(
                f"rank must be at least 0 and below {self.size}, got {self.rank}", remedy=None
            )
        if self.run < 1 or self.batch % self.run:
            raise UsageError(
                f"run={self.run} does not divide batch={self.batch}",
                remedy="choose a run of 1 or more that divides the batch",
            )

    def numbers(self, first: int, iterations: int) -> NDArray[np.int64]:
        """(iterations, batch): the rank's numbers in the iterations from `first` on."""
        import numpy as np

        record = np.arange(self.batch)
        within = (record // self.run * self.size + self.rank) * self.run + record % self.run
        iteration = np.arange(first, first + iterations)
        return iteration[:, None] * (self.size * self.batch) + within[None, :]
