"""More threads than the job has CPUs for."""

from __future__ import annotations

import math

from dltune.analysis.advice.advice import Advice, Gain, working
from dltune.analysis.figures import Analysis


def threads(analysis: Analysis) -> Advice | None:
    """The gain at most: what the ops, measured one at a time, take less on the right count."""
    profile = analysis.profile
    machine, intra = profile.machine, profile.settings.intra
    cores = len(machine.cores)
    right = max(1, min(cores, math.floor(machine.quota or cores)))
    if intra <= right:
        return None
    limit = f"the {cores} cores" if right == cores else f"the quota of {machine.quota:g} CPUs"
    told = f"ops have {intra} threads, more than {limit}"
    there = _serial(analysis, min(intra, cores))
    here = _serial(analysis, right)
    gain = None
    if there and here and right < min(intra, cores):
        told += (
            f"; measured one at a time they take {here * 1e3:.3g} ms on {right} and "
            f"{there * 1e3:.3g} ms on {min(intra, cores)}"
        )
        gain = Gain(0.0, max(0.0, 1 - here / there) * working(profile))
    return Advice(("threads",), f"{told}; {right} would keep none waiting for a CPU", gain)


def _serial(analysis: Analysis, count: int) -> float | None:
    """Seconds of all ops of a round on so many threads; None when some were not measured there."""
    total = 0.0
    for figures in analysis.ops:
        if figures.cases:
            found = [c.time.median for c in figures.cases if c.time.threads == count]
            if not found:
                return None
            total += min(found) * figures.op.count
    return total
