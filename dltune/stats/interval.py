"""The form of every interval here, and the requirements on its values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A median, and an interval that holds the true one with `confidence`.

    `low` and `high` are -infinity and infinity where the values are too few for a bound. `rounds`:
    of how many values (of all groups together) the median is.
    """

    median: float
    low: float
    high: float
    confidence: float
    rounds: int

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Return low and high for documents: None where there is no bound."""
        low, high = (x if math.isfinite(x) else None for x in (self.low, self.high))
        return low, high


def between_ranks(
    ordered: Sequence[float], rank: int | None, confidence: float, rounds: int
) -> Interval:
    """Return the interval from the value of that rank to the value as far from the end; without
    bounds if there is no such rank."""
    return Interval(
        median=statistics.median(ordered),
        low=ordered[rank - 1] if rank else -math.inf,
        high=ordered[-rank] if rank else math.inf,
        confidence=confidence,
        rounds=rounds,
    )


def require(values: Sequence[float], confidence: float) -> None:
    """Raise ValueError when there is no value, a value is not a number, or `confidence` is not
    between 0 and 1."""
    if not values:
        raise ValueError("no rounds to judge")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if any(math.isnan(value) for value in values):
        raise ValueError("a value is not a number")
