"""A distribution given by some of its quantiles, linear between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.stats import quantiles

# Shares at which measured values are kept: their tail decides how long the last of many ranks is.
_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0)


@dataclass(frozen=True)
class Quantiles:
    """`points`: (share of the values that are at most this, value), both rising, from share 0 to 1.

    Raises ValueError when they are not.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        values = [value for _, value in self.points]
        if len(self.points) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise ValueError("quantiles go from share 0 to share 1")
        if any(a >= b for a, b in itertools.pairwise(shares)):
            raise ValueError("shares of quantiles rise")
        if any(a > b for a, b in itertools.pairwise(values)) or not all(map(math.isfinite, values)):
            raise ValueError("values of quantiles rise and are finite")
        if values[0] < 0:
            raise ValueError(f"the least value, {values[0]}, is negative")

    @property
    def mean(self) -> float:
        return math.fsum(
            (b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(self.points)
        )


def constant(value: float) -> Quantiles:
    return Quantiles(((0.0, value), (1.0, value)))


def measured(values: Sequence[float]) -> Quantiles:
    """The quantiles of measured values, more of them towards the tail. Raises ValueError."""
    rising = itertools.accumulate(quantiles(values, _SHARES), max)
    return Quantiles(tuple(zip(_SHARES, rising, strict=True)))
