"""Strategy 3: what each op may choose from when ops run beside each other (section III-D).

The choosing itself happens while the job runs, by the scheduler of dltune/native/corun.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from dltune.documents.plan import CANDIDATES, Candidate
from dltune.workload.workload import Workload

# "the difference in the number of threads is larger than 2 and 2 is an empirical value": an op
# stays within this of strategy 2's count.
DIFFERENCE = 2


def candidates(
    workload: Workload, chosen: Sequence[Candidate | None]
) -> dict[int, tuple[Candidate, ...]]:
    """By index of each op that is worth admitting: the three fastest ways to run it near strategy
    2's count, the fastest first."""
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
