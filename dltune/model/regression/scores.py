"""The paper's two measures of a model (section III-B)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


def accuracy(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """1 - mean(|measured - predicted| / measured), both in seconds: negative when times are wrong
    by more than themselves.

    The paper's formula (Table V) is lost in its text; this is the usual one. Raises ValueError when
    nothing was measured.
    """
    if not measured:
        raise ValueError("no measured time to compare with")
    pairs = zip(predicted, measured, strict=True)
    return 1 - statistics.fmean(abs(y - guess) / y for guess, y in pairs)


class Scores(NamedTuple):
    """`accuracy` as above. `r2`: 1 - sum((y - predicted)^2) / sum((y - mean y)^2), which only the
    longest ops decide. `ops`: how many were predicted."""

    accuracy: float
    r2: float
    ops: int


def scores(predicted: Sequence[float], measured: Sequence[float]) -> Scores:
    """Both in seconds. Raises ValueError when nothing was measured."""
    near = accuracy(predicted, measured)
    mean = statistics.fmean(measured)
    variance = sum((y - mean) ** 2 for y in measured)
    left = sum((y - guess) ** 2 for guess, y in zip(predicted, measured, strict=True))
    return Scores(near, 1 - left / variance if variance else float(left == 0), len(measured))
