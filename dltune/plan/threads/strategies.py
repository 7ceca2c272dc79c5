"""The paper's four strategies (section III-D), each on what the one before has chosen."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.schemas.machine import Machine
from dltune.schemas.plan import CANDIDATES, Candidate
from dltune.schemas.profile import Placement
from dltune.simulate.workload import Workload

# "the difference in the number of threads is larger than 2 and 2 is an empirical value": an op
# stays within this of strategy 2's count.
DIFFERENCE = 2


def per_instance(workload: Workload, most: int | None = None) -> list[Candidate | None]:
    """Strategy 1: each op instance on the threads that run it fastest.

    Per op the fastest thread count and placement; None for ops that are not controlled. Ops whose
    count is held keep it. `most`: the threads an op may have at most.
    """
    counts: dict[Placement, list[int]] = {"spread": [], "shared": []}
    for threads, placements in workload.offered.items():
        for placement in placements if most is None or threads <= most else ():
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


def leaders(workload: Workload, fastest: Sequence[Candidate | None]) -> dict[str, int]:
    """Per op type the index of its most time-consuming instance (each at its own best)."""
    found: dict[str, int] = {}
    for index, choice in enumerate(fastest):
        if choice is None or index in workload.held:
            continue
        kind = workload.ops[index].type
        best = fastest[found[kind]] if kind in found else None
        if best is None or choice.seconds > best.seconds:
            found[kind] = index
    return found


def per_type(workload: Workload, fastest: Sequence[Candidate | None]) -> list[Candidate | None]:
    """Strategy 2: one thread count per op type, so that it seldom changes.

    The count is the one that runs the type's most time-consuming instance fastest. The placement
    stays each instance's own, the better one: only the number of threads is costly to change.
    `fastest`: of strategy 1. None for ops not controlled.
    """
    leading = leaders(workload, fastest)
    found = list(fastest)
    for index, curve in enumerate(workload.curves):
        if curve is not None and index not in workload.held:
            leader = fastest[leading[workload.ops[index].type]]
            assert leader is not None  # it has a curve
            found[index] = workload.placed(curve, leader.threads)
    return found


def candidates(
    workload: Workload, chosen: Sequence[Candidate | None]
) -> dict[int, tuple[Candidate, ...]]:
    """Strategy 3: what each op may choose from when ops run beside each other.

    By index of each op that is worth admitting: the three fastest ways to run it near strategy
    2's count, the fastest first. The choosing itself happens while the job runs, by the scheduler
    of dltune/native/corun.h.
    """
    cases = {
        n: [(m, p) for m in _near(n, workload.cores) for p in workload.offered[m]]
        for n in {c.threads for i, c in enumerate(chosen) if c and i not in workload.held}
    }
    found: dict[int, tuple[Candidate, ...]] = {}
    for index, (curve, choice) in enumerate(zip(workload.curves, chosen, strict=True)):
        if curve is None or choice is None or workload.small(index):
            continue
        if index in workload.held:
            found[index] = (choice,)
            continue
        ways = (Candidate(n, p, curve.seconds(n, p)) for n, p in cases[choice.threads])
        found[index] = tuple(sorted(ways, key=lambda c: (c.seconds, c.threads))[:CANDIDATES])
    return found


def _near(threads: int, cores: int) -> range:
    return range(max(1, threads - DIFFERENCE), min(cores, threads + DIFFERENCE) + 1)


def why_no_hyperthreads(machine: Machine) -> str | None:
    """Strategy 4 runs small ops on the second hardware threads of busy cores. Which op is decided
    while the job runs (dltune/native/corun.h); here only, why there can be none; None: it applies.
    """
    if any(len(core.cpus) > 1 for core in machine.cores):
        return None
    return (
        f"the smt strategy does not apply: no core of {machine.name} offers this job a second "
        "hardware thread"
    )
