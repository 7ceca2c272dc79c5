"""How far repeated measurements of one thing lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def relative_spread(samples: Sequence[float]) -> float:
    """Half the interquartile range over the median, without unit; 0 for a single sample.

    Quartiles are interpolated linearly between the sorted samples (the inclusive method of Python's
    `statistics.quantiles`). One wild sample among many does not change it. 0 where the median is
    not positive, as no time is.
    """
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2 / middle if middle > 0 else 0.0
