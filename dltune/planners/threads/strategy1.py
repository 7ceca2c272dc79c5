"""Strategy 1: each op instance on the threads that run it fastest (section III-D)."""

from __future__ import annotations

from dltune.documents.plan import Candidate
from dltune.documents.profile import Placement
from dltune.workload.workload import Workload


def choices(workload: Workload, most: int | None = None) -> list[Candidate | None]:
    """Per op the fastest thread count and placement; None for ops that are not controlled.

    Ops whose count is held keep it. `most`: the threads an op may have at most.
    """
    counts: dict[Placement, list[int]] = {"spread": [], "shared": []}
    for threads, placement in workload.cases():
        if most is None or threads <= most:
            counts[placement].append(threads)
    found: list[Candidate | None] = []
    for index, curve in enumerate(workload.curves):
        if curve is None:
            found.append(None)
        elif index in workload.held:
            found.append(workload.placed(curve, workload.held[index]))
        else:
            found.append(curve.best(curve.corners(counts)))
    return found
