"""TIC and TAC: the paper's orders of a worker's receives (TicTac, section 4)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dltune.simulate.overlap.partition import Partition
from dltune.simulate.overlap.properties import Outstanding


def tic(partition: Partition) -> list[int]:
    """Timing-independent (Algorithm 2): places of the receives, by how many must have come until
    one lets an op run together with others (M+ with a time of one for each).

    Of equal ones, in the graph's order; those that no op needs together with others come last.
    """
    ones = np.ones(len(partition), np.int64)
    priority = Outstanding(partition, ones).properties().impending
    return [int(place) for place in np.argsort(priority, kind="stable")]


def tac(partition: Partition) -> list[int]:
    """Timing-aware (Algorithm 3): places of the receives, each chosen as the best of those that
    are left when all before it have come."""
    outstanding = Outstanding(partition)
    order: list[int] = []
    while len(outstanding.receives):
        best = foremost(outstanding, range(len(outstanding.receives)))
        order.append(int(outstanding.receives[best]))
        outstanding.sent(best)
    return order


def foremost(outstanding: Outstanding, places: Iterable[int]) -> int:
    """Which of these places of `outstanding.receives` TAC sends first.

    A comes before B when min(P_B, M_A) < min(P_A, M_B), as equation 6 derives it. The listing of
    Algorithm 3 compares these the other way round, which would send first what overlaps least. Of
    equal ones the one with the lower M+ comes first. This comparison is not transitive, as the
    paper has it, so "the minimum" depends on the search: it is a scan in the graph's order.
    """
    direct, impending = (values.tolist() for values in outstanding.properties())
    transfer = outstanding.transfer.tolist()
    best, *others = places
    for other in others:
        ours = min(direct[other], transfer[best])
        theirs = min(direct[best], transfer[other])
        if ours > theirs or (ours == theirs and impending[other] < impending[best]):
            best = other
    return best
