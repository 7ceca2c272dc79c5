"""How good an order is: its makespan, and where that lies between the bounds (TicTac, section 3.2).

Computing is one resource here, as in the paper: one op after the other, and some op whenever one is
ready. Then a step's time depends on when each op becomes ready alone: ops never wait for an op that
becomes ready later than they do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.graph.csr import Amounts
from dltune.simulate.overlap.partition import Partition


def arrivals(partition: Partition, order: Sequence[int]) -> Amounts:
    """By receive, when it has come, in nanoseconds, where each channel sends in this order."""
    came = np.zeros(len(partition), np.int64)
    sequence = np.asarray(order, np.int64)
    for channel in range(partition.channels):
        own = sequence[partition.channel[sequence] == channel]
        came[own] = np.cumsum(partition.transfer[own])
    return came


def makespan(partition: Partition, order: Sequence[int]) -> int:
    """Nanoseconds from the first transfer to the end of the last op, or of the last transfer.

    The step ends when what is ready from some moment on has been computed: at the latest of these.
    """
    came, _, ends = schedule(partition, order)
    total = int(partition.work.sum()) + partition.free
    return max(total, int(ends.max(initial=0)), int(came.max(initial=0)))


def schedule(partition: Partition, order: Sequence[int]) -> tuple[Amounts, Amounts, Amounts]:
    """In nanoseconds: by receive when it has come; by set of receives, in the order in which all of
    one have come, when that is, and when all that is ready no sooner could have been computed."""
    came = arrivals(partition, order)
    ready = np.where(partition.needs, came, 0).max(axis=1, initial=0)
    by_time = np.argsort(ready, kind="stable")
    left = np.cumsum(partition.work[by_time][::-1])[::-1]
    return came, ready[by_time], ready[by_time] + left


@dataclass(frozen=True)
class Bounds:
    """In nanoseconds, without regard to what depends on what.

    `upper`: nothing overlaps (equation 1). `lower`: the busiest resource is never idle (equation
    2).
    """

    upper: int
    lower: int

    @classmethod
    def of(cls, partition: Partition) -> Bounds:
        computing = int(partition.work.sum()) + partition.free
        load = partition.load()
        return cls(computing + int(load.sum()), max(computing, int(load.max(initial=0))))

    @classmethod
    def run(cls, ops: Iterable[tuple[int, int]], loads: Collection[int]) -> Bounds:
        """Of a step that was run, by when each op began and ended and how long each channel's
        transfers took. Computing is the time in which at least one op ran, so that these are bounds
        with several ops at a time, too."""
        computing, until = 0, 0
        for start, end in sorted(ops):
            computing += max(0, end - max(start, until))
            until = max(until, end)
        return cls(computing + sum(loads), max(computing, *loads))

    def efficiency(self, makespan: float) -> float:
        """E: 1 for a step as short as can be, 0 for the longest (equation 3). 1 where no order
        changes anything."""
        room = self.upper - self.lower
        return (self.upper - makespan) / room if room else 1.0
