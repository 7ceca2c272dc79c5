"""What each receive has to do with computing: P and M+ (TicTac, Algorithm 1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dltune.simulate.graph.csr import (
    Amounts,
    Flags,
    Integers,
    Numbers,
)
from dltune.simulate.overlap.partition import Partition

NEVER = np.iinfo(np.int64).max  # M+ of a receive with which no op needs another


class Properties(NamedTuple):
    """Over the outstanding receives. `direct` (P): nanoseconds of the ops that wait for this one
    alone. `impending` (M+): the least transfer time after which an op can run that needs it and
    another; NEVER where there is none."""

    direct: Amounts
    impending: Amounts


class Outstanding:
    """The receives of a partition that have not been sent, and the sets of them that ops wait for.

    A set's transfer time (M) is that of its busiest channel: the paper has one, and transfers over
    several go side by side.
    """

    def __init__(self, partition: Partition, transfer: Amounts | None = None) -> None:
        """`transfer`: other times than the partition's own."""
        self.receives: Integers = np.arange(len(partition), dtype=np.int32)
        self.transfer: Amounts = (partition.transfer if transfer is None else transfer).copy()
        self._channel: Integers = partition.channel
        self._flags: Flags = partition.needs
        self._needs: Numbers = partition.needs.astype(np.float64)  # products of these are exact
        self._work: Numbers = partition.work.astype(np.float64)
        # a column per channel, and one that counts
        self._weights: Numbers = np.zeros((len(partition), max(1, partition.channels) + 1))
        self._weights[self.receives, partition.channel] = self.transfer
        self._weights[:, -1] = 1.0

    def properties(self) -> Properties:
        sums = self._needs @ self._weights
        count, time = sums[:, -1], sums[:, :-1].max(axis=1, initial=0.0)
        alone = count == 1.0
        direct = self._work[alone] @ self._needs[alone]
        several = np.flatnonzero(count > 1.0)
        soonest = several[np.argsort(time[several], kind="stable")]
        impending = np.full(len(self.receives), NEVER)
        if len(soonest):
            held = self._flags[soonest]
            first = held.argmax(axis=0)
            there = held[first, np.arange(held.shape[1])]
            impending[there] = time[soonest[first[there]]].astype(np.int64)
        return Properties(direct.astype(np.int64), impending)

    def sent(self, place: int, part: int | None = None) -> None:
        """The receive at this place of `receives` is outstanding no more, or `part` nanoseconds
        less of it."""
        if part is not None:
            self.transfer[place] -= part
            self._weights[place, self._channel[place]] -= part
            return
        kept = np.arange(len(self.receives)) != place
        self.receives, self._weights = self.receives[kept], self._weights[kept]
        self.transfer, self._channel = self.transfer[kept], self._channel[kept]
        self._flags = self._flags[:, kept]
        waiting = self._flags.any(axis=1)
        self._flags, self._work = self._flags[waiting], self._work[waiting]
        self._needs = self._flags.astype(np.float64)
