"""How much a ratio of two medians may differ from 1 by noise alone.

Of an op, a profile keeps the median of a few runs and their spread (half the interquartile range
over the median). For normal noise the standard deviation is spread / 0.6745 medians, and the median
of n runs has the standard error sigma * sqrt(pi / 2 / n) (Kenney and Keeping, Mathematics of
Statistics, part 2, 1951). Two things make that too small, and both are taken from the data:

- the spread of three to eight runs is itself uncertain: an op's spread is taken to be no less than
  the median spread of all ops of its profile;
- the machine was not the same at both times. Ops that did not change show by how much: the ratios
  of most ops lie around their common median as widely as noise really makes them (an empirical
  null, Efron, Large-Scale Inference, 2010, chapter 6). All standard errors are widened until half
  of the ops are within the quartiles of their noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.documents.profile import OpTime, Samples

# the part of a normal distribution's sigma that half its interquartile range is
QUARTILE = 0.6745
# of all ops that did not change, one may be called changed so often
FALSE_ALARM = 0.05
# fewer runs tell nothing of their spread
LEAST_SAMPLES = 3
# ops from which on their own ratios say how wide noise is
LEAST_OPS = 10


@dataclass(frozen=True)
class Pair:
    """The same quantity in A and in B."""

    a: OpTime | Samples
    b: OpTime | Samples

    @property
    def told(self) -> bool:
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
    told = [pair for pair in pairs if pair.told]
    if not told:
        return [None] * len(pairs)
    floors = (
        statistics.median(pair.a.spread for pair in told),
        statistics.median(pair.b.spread for pair in told),
    )
    wide = widening(told, floors)
    reach = statistics.NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / len(told))
    found: list[tuple[float, float] | None] = []
    for pair in pairs:
        if not pair.told:
            found.append(None)
            continue
        half = reach * wide * error(pair, floors)
        found.append((math.exp(pair.logarithm - half), math.exp(pair.logarithm + half)))
    return found


def error(pair: Pair, floors: tuple[float, float]) -> float:
    """Standard error of the logarithm of b / a."""
    return math.hypot(
        _median_error(pair.a.spread, floors[0], pair.a.samples),
        _median_error(pair.b.spread, floors[1], pair.b.samples),
    )


def widening(pairs: Sequence[Pair], floors: tuple[float, float]) -> float:
    """The factor on all standard errors that the ops' own ratios ask for, at least 1."""
    if len(pairs) < LEAST_OPS:
        return 1.0
    middle = statistics.median(pair.logarithm for pair in pairs)
    scores = []
    for pair in pairs:
        off, expected = abs(pair.logarithm - middle), error(pair, floors)
        if expected > 0:
            scores.append(off / expected)
    return max(1.0, statistics.median(scores) / QUARTILE) if scores else 1.0


def _median_error(spread: float, floor: float, samples: int) -> float:
    return max(spread, floor) / QUARTILE * math.sqrt(math.pi / 2 / samples)
