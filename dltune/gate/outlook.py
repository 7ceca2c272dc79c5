"""Results of an undecided limit so far, and the rounds needed to decide it."""

from __future__ import annotations

import math

from dltune.schemas.gate import Verdict
from dltune.stats import Interval

# a value that needs more rounds than so many times the present number is taken to be at the
# limit
FORESEEN = 20.0


def rounds_needed(interval: Interval, limit: float) -> int | None:
    """About how many rounds in all decide `limit`, should the median stay where it is: an
    interval narrows with the root of their number (by a little less, as it holds at every look).
    None where that cannot be foreseen."""
    middle, bound = interval.median, interval.high if interval.median < limit else interval.low
    if not (0 < middle < math.inf and 0 < bound < math.inf) or middle == limit:
        return None
    width, distance = math.log(bound / middle), math.log(limit / middle)
    needed = interval.rounds * (width / distance) ** 2
    return math.ceil(needed) if needed <= FORESEEN * interval.rounds else None


def excluded(verdict: Verdict) -> float | None:
    """The most that it can be above the base, or for a limit of a value above that limit, as a
    share; None: nothing is excluded."""
    if verdict.high is None:
        return None
    return verdict.high / (1.0 if verdict.over == "ratio" else verdict.limit) - 1.0
