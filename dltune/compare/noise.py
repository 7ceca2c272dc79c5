"""Bound on the difference from 1 of a ratio of two medians by noise alone.

A profile keeps for each op the median of a few runs and their spread (half the interquartile range
over the median). Its standard deviation follows from the spread as for normal noise, with the
expected quartiles of so few samples (Blom, Statistical Estimates and Transformed Beta-Variables,
1958), and the standard error of the median from that (sigma * sqrt(pi / 2 / n)). Unknowns
are taken from the data or allowed for:

- the spread of a handful of runs is uncertain: an op's is taken to be no less than the median of
  all ops, and the interval is Student's, not the normal one;
- the machine was not the same at both times. How much that does shows in the ops that did not
  change: a variance is added to all, until half of the ops are within the quartiles of their noise
  (a random effect, as between studies in a meta-analysis: Paule and Mandel, J. Res. NBS 87, 1982,
  here by medians, which changed ops do not move).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.schemas.profile import OpTime, Samples
from dltune.stats import t_quantile

# half the interquartile range of a normal distribution, in sigmas
QUARTILE = 0.6745
# of all ops that did not change, an op can be called changed so often
FALSE_ALARM = 0.05
# fewer runs do not show their spread
LEAST_SAMPLES = 3
# ops from which on their ratios say how much the machine's own changes do
LEAST_OPS = 10
# a ratio's logarithm goes no further: `math.exp` of more than 709 overflows
FURTHEST = 700.0


@dataclass(frozen=True)
class Pair:
    """The same quantity in A and in B."""

    a: OpTime | Samples
    b: OpTime | Samples

    @property
    def comparable(self) -> bool:
        return min(self.a.samples, self.b.samples) >= LEAST_SAMPLES and min(
            self.a.median, self.b.median
        ) > 0  # fmt: skip

    @property
    def logarithm(self) -> float:
        return math.log(self.b.median / self.a.median)


def intervals(pairs: Sequence[Pair]) -> list[tuple[float, float] | None]:
    """For each pair the interval of b / a; None where there are too few samples.

    All intervals together hold their true ratios with 1 - FALSE_ALARM (Bonferroni).
    """
    told = [pair for pair in pairs if pair.comparable]
    if not told:
        return [None] * len(pairs)
    floors = (
        statistics.median(_sigma(pair.a) for pair in told),
        statistics.median(_sigma(pair.b) for pair in told),
    )
    between = _between(told, floors)
    level = 1 - FALSE_ALARM / 2 / len(told)
    found: list[tuple[float, float] | None] = []
    for pair in pairs:
        if not pair.comparable:
            found.append(None)
            continue
        reach = t_quantile(level, pair.a.samples + pair.b.samples - 2)
        half = reach * math.hypot(_error(pair, floors), between)
        ends = (pair.logarithm - half, pair.logarithm + half)
        low, high = (math.exp(max(-FURTHEST, min(end, FURTHEST))) for end in ends)
        found.append((low, high))
    return found


def _between(pairs: Sequence[Pair], floors: tuple[float, float]) -> float:
    """The standard deviation that the two moments add to each logarithm."""
    if len(pairs) < LEAST_OPS:
        return 0.0
    middle = statistics.median(pair.logarithm for pair in pairs)
    off = [abs(pair.logarithm - middle) for pair in pairs]
    errors = [_error(pair, floors) for pair in pairs]

    def too_wide(between: float) -> bool:
        scores = (o - QUARTILE * math.hypot(e, between) for o, e in zip(off, errors, strict=True))
        return statistics.median(scores) > 0

    low, high = 0.0, max(off) / QUARTILE
    if not too_wide(low):
        return low
    for _ in range(60):
        guess = (low + high) / 2
        low, high = (guess, high) if too_wide(guess) else (low, guess)
    return high


def _error(pair: Pair, floors: tuple[float, float]) -> float:
    """Standard error of the logarithm of b / a."""
    return math.hypot(
        max(_sigma(pair.a), floors[0]) * math.sqrt(math.pi / 2 / pair.a.samples),
        max(_sigma(pair.b), floors[1]) * math.sqrt(math.pi / 2 / pair.b.samples),
    )


def _sigma(of: OpTime | Samples) -> float:
    """Standard deviation over the median."""
    # the upper quartile's place among the sorted samples, and the value expected there
    rank = 1 + 0.75 * (of.samples - 1)
    return of.spread / statistics.NormalDist().inv_cdf((rank - 0.375) / (of.samples + 0.25))
