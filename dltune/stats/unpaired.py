"""The ratio of two groups of times that were not measured in pairs, free of assumptions.

The shift of one sample against another (Hodges and Lehmann, 1963) on logarithms: the median of all
ratios b / a, and the interval between two of them whose ranks follow from the exact distribution of
Mann and Whitney's U. It holds the true ratio with the confidence it says, whatever the noise looks
like, as long as both groups have noise of the same shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist

from dltune.stats.interval import Interval, between_ranks

# steps of `_ways` that may be taken, about a second; beyond, U is as good as normal
MOST_STEPS = 2_000_000


def unpaired_ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Interval:
    """The typical b / a, without bounds when the groups are too small for `confidence`.

    Raises ValueError when a group is empty or a time is not positive.
    """
    if not a or not b:
        raise ValueError("no times to compare")
    if min(*a, *b) <= 0:
        raise ValueError("times must be positive")
    ratios = sorted(after / before for before in a for after in b)
    rank = _rank(len(a), len(b), confidence)
    return between_ranks(ratios, rank, confidence, len(a) + len(b))


def _rank(m: int, n: int, confidence: float) -> int:
    """The largest k for which [ratio k, ratio m*n+1-k] has the confidence; 0 when none has."""
    m, n = sorted((m, n))
    if m * m * n > MOST_STEPS:
        sigma = math.sqrt(m * n * (m + n + 1) / 12)
        within = NormalDist().inv_cdf((1 + confidence) / 2) * sigma
        return max(math.floor(m * n / 2 - within + 0.5), 0)  # U is a whole number
    ways = _ways(m, n)
    most = Fraction(1 - confidence) * sum(ways) / 2  # more than the largest float may hold
    below, rank = 0, 0
    for k, count in enumerate(ways, start=1):
        below += count  # outcomes with U < k
        if below > most:
            break
        rank = k
    return min(rank, m * n // 2)


@functools.cache
def _ways(m: int, n: int) -> tuple[int, ...]:
    """By U from 0 to m * n, in how many orders of m and n values it comes out."""
    # partitions of U into at most m parts of at most n: the Gaussian binomial coefficient
    found = [1] + [0] * (m * n)
    for factor in range(1, m + 1):
        for at in range(m * n, n + factor - 1, -1):
            found[at] -= found[at - n - factor]
        for at in range(factor, m * n + 1):
            found[at] += found[at - factor]
    return tuple(found)
