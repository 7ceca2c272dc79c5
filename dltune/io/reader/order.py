"""Which records come in which order: a circular sequence over the whole database.

Number s of the sequence is record s mod n, or, shuffled, place s mod n of the permutation of epoch
s div n. LMDB's readers go on with the first record after the last one, so that a block of records
is always full (the thesis, chapter 5.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

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
            while len(self._epochs) >= 2:  # this epoch's and the one read ahead
                self._epochs.pop(next(iter(self._epochs)), None)
            self._epochs[epoch] = known
        return known
