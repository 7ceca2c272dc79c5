"""Many values in six numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dltune.systems.ranks.schemas.horovod import Distribution


def distribution(values: Sequence[float]) -> Distribution:
    """Quantiles are values that occurred: the least that this share of all do not exceed."""
    if not values:
        return Distribution(0)
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    mean = math.fsum(ordered) / len(ordered)
    return Distribution(len(ordered), mean, at(0.5), at(0.95), at(0.99), ordered[-1])
