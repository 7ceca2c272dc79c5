"""Page faults of ops: memory that the allocator gave back, and maps anew in each step."""

from __future__ import annotations

from dltune.analysis.advice.advice import Advice, Gain, working
from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.roofline import Measured
from dltune.analysis.why import FAULT_SECONDS

# of the op time; less could hide in the spread of the measurements
SHARE = 0.02


def faults(analysis: Analysis) -> Advice | None:
    """The gain at most: each fault's seconds, divided among the threads of its op."""
    profile = analysis.profile
    count = wall = whole = 0.0
    for figures in analysis.ops:
        case = _usual(figures, profile.settings.intra)
        if case is None:
            continue
        whole += case.time.median * figures.op.count
        if case.rates.faults:
            count += case.rates.faults * figures.op.count
            wall += case.rates.faults * figures.op.count / case.time.threads
    counters = profile.counters
    each = (counters and counters.fault_seconds) or FAULT_SECONDS
    share = min(1.0, wall * each / whole) if whole > 0 else 0.0
    if share < SHARE:
        return None
    known = "as measured here" if counters and counters.fault_seconds else "at the very least"
    return Advice(
        ("allocator",),
        f"the ops of a step have {count:,.0f} page faults, {count * each * 1e3:.3g} ms of CPU time "
        f"at {each * 1e6:.2g} us each, {known}: memory that is freed goes back to the system and "
        "is mapped anew; an allocator that keeps it, or huge pages, cure it",
        Gain(0.0, share * working(profile)),
    )


def _usual(figures: Figures, intra: int) -> Measured | None:
    """The op at as many threads as the job gives it, or nearest to it."""
    return min(figures.cases, key=lambda case: abs(case.time.threads - intra), default=None)
