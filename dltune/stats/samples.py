"""Summaries of a sample of times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from dltune.schemas.profile import Samples


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """The quantile at each share (0 to 1), interpolated linearly between the sorted values (the
    inclusive method of Python's `statistics.quantiles`). Raises ValueError without a value."""
    if not values:
        raise ValueError("no values to take quantiles of")
    ordered = sorted(values)
    last = len(ordered) - 1

    def at(share: float) -> float:
        below = math.floor(share * last)
        above = min(below + 1, last)
        return ordered[below] + (share * last - below) * (ordered[above] - ordered[below])

    return [at(share) for share in shares]


def relative_spread(samples: Sequence[float]) -> float:
    """Half the interquartile range over the median, without unit; 0 for a single sample.

    One wild sample among many does not change it. 0 where the median is not positive, as no time
    is.
    """
    if len(samples) < 2:
        return 0.0
    low, middle, high = quantiles(samples, (0.25, 0.5, 0.75))
    return (high - low) / 2 / middle if middle > 0 else 0.0


def summary(values: Sequence[float]) -> Samples:
    """Return the summary of times in seconds for documents. Raises ValueError without any."""
    return Samples(
        samples=len(values),
        min=min(values),
        median=statistics.median(values),
        spread=relative_spread(values),
    )
