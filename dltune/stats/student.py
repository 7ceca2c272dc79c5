"""Student's t distribution, for the mean of few samples whose spread is uncertain itself."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

HIGHEST = 1 - 1e-9


@functools.lru_cache(maxsize=1024)
def t_quantile(level: float, freedom: int) -> float:
    """What Student's t with `freedom` degrees of freedom is at most with probability `level`.

    Right to 1e-6 of itself, to 100,000 degrees. By Newton's method on the angle whose tangent is
    t / sqrt(freedom): the probability rises with it ever more slowly, so that a step from below,
    where the normal quantile lies, never goes beyond.

    Raises ValueError when `level` is not from 0.5 to 1 - 1e-9 (nearer to 1 its own rounding would
    show), or `freedom` is below 1.
    """
    if not 0.5 <= level <= HIGHEST:
        raise ValueError(f"level must be between 0.5 and 1 - 1e-9, got {level}")
    if freedom < 1:
        raise ValueError(f"freedom must be at least 1, got {freedom}")
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    angle, step = math.atan(NormalDist().inv_cdf(level) / math.sqrt(freedom)), math.inf
    while step > 1e-12 * angle:
        slope = 2 / math.sqrt(math.pi) * density * math.cos(angle) ** (freedom - 1)
        # 4e-16: the sum's rounding, which no step makes good
        step = max(0.0, 2 * level - 1 - _within(angle, freedom) - 4e-16) / slope
        angle += step
    return math.sqrt(freedom) * math.tan(angle)


def _within(angle: float, freedom: int) -> float:
    """The probability that |t| < sqrt(freedom) tan(angle): a finite sum (Abramowitz and Stegun,
    26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term, total = math.cos(angle) ** odd, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    central = total * math.sin(angle)
    return (angle + central) * 2 / math.pi if odd else central
