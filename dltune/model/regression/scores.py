"""The paper's two measures of a model (section III-B)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Scores(NamedTuple):
    """`accuracy`: 1 - mean(|y - predicted| / y), negative when times are wrong by more than
    themselves. `r2`: 1 - sum((y - predicted)^2) / sum((y - mean y)^2), which only the longest ops
    decide. `ops`: how many were predicted."""

    accuracy: float
    r2: float
    ops: int


def scores(predicted: Sequence[float], measured: Sequence[float]) -> Scores:
    """Both in seconds. Raises ValueError when nothing was measured."""
    if not measured:
        raise ValueError("no measured op to compare with")
    pairs = list(zip(predicted, measured, strict=True))
    accuracy = 1 - statistics.fmean(abs(y - guess) / y for guess, y in pairs)
    mean = statistics.fmean(measured)
    variance = sum((y - mean) ** 2 for y in measured)
    left = sum((y - guess) ** 2 for guess, y in pairs)
    return Scores(accuracy, 1 - left / variance if variance else float(left == 0), len(pairs))
