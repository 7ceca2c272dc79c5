"""Strategy 2: one thread count per op type, so that it seldom changes (section III-D).

The count is the one that runs the type's most time-consuming instance fastest. The placement stays
each instance's own: only the number of threads is costly to change.
"""

from __future__ import annotations

from collections.abc import Sequence

from dltune.documents.plan import Candidate
from dltune.workload.workload import Workload


def leaders(workload: Workload, strategy1: Sequence[Candidate | None]) -> dict[str, int]:
    """Per op type the index of its most time-consuming instance (each at its own best)."""
    found: dict[str, int] = {}
    for index, choice in enumerate(strategy1):
        if choice is None or index in workload.held:
            continue
        kind = workload.ops[index].type
        best = strategy1[found[kind]] if kind in found else None
        if best is None or choice.seconds > best.seconds:
            found[kind] = index
    return found


def choices(workload: Workload, strategy1: Sequence[Candidate | None]) -> list[Candidate | None]:
    """Per op its type's thread count, in the better placement; None for ops not controlled."""
    leading = leaders(workload, strategy1)
    found: list[Candidate | None] = []
    for index, curve in enumerate(workload.curves):
        if curve is None or index in workload.held:
            found.append(strategy1[index])
            continue
        leader = strategy1[leading[workload.ops[index].type]]
        assert leader is not None  # it has a curve
        found.append(workload.placed(curve, leader.threads))
    return found
