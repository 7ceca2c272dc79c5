"""What every performance model gives: an op's seconds at a case, and how far off they may be.

The simplest of them stands here too: an op's own curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dltune.schemas.profile import Op, OpTime, Placement
from dltune.simulate.model.curve import Curve


class Prediction(NamedTuple):
    """`error`: the truth is likely within `seconds` plus or minus this, in seconds."""

    seconds: float
    error: float


class Model(Protocol):
    """Hill climbing's curves (below) and regression (dltune.simulate.model.regression)."""

    def predict(self, key: str, threads: int, placement: Placement) -> Prediction:
        """Raises KeyError for an op that the model knows nothing of, or no such case."""
        ...


@dataclass(frozen=True)
class HillClimbing:
    """The paper's second model: an op's own curve, found by hill climbing (III-C).

    `ops`: measured ones, by key.
    """

    ops: Mapping[str, tuple[Curve, tuple[OpTime, ...]]]

    @classmethod
    def of(cls, ops: Iterable[Op]) -> HillClimbing:
        return cls({op.key: (Curve.measured(op.times), op.times) for op in ops if op.times})

    def predict(self, key: str, threads: int, placement: Placement) -> Prediction:
        """The curve's time. The error of a measured case is the spread of its samples, that of any
        other how far a convex curve can be from it (`below`). Raises KeyError without `key`."""
        curve, times = self.ops[key]
        seconds = curve.seconds(threads, placement)
        for time in times:
            if (time.threads, time.placement) == (threads, placement):
                return Prediction(seconds, time.spread * time.median)
        return Prediction(seconds, seconds - below(curve, threads, placement))


def below(curve: Curve, threads: int, placement: Placement) -> float:
    """The least seconds that a case can take, given the measured ones.

    An op's time over thread counts is convex (III-C), so it lies above the lines that its measured
    stretches on either side continue, and n threads are at most n times as fast as one.
    """
    points = curve.points[placement]
    before = [point for point in points if point[0] <= threads]
    after = [point for point in points if point[0] >= threads]
    bounds = [seconds * n / threads for n, seconds in before[-1:]]
    bounds += [seconds for n, seconds in after[:1] if not before]
    for pair in (before[-2:], after[:2]):
        if len(pair) == 2 and before and after:
            (n0, s0), (n1, s1) = pair
            bounds.append(s0 + (s1 - s0) * (threads - n0) / (n1 - n0))
    return min(max(bounds, default=0.0), curve.seconds(threads, placement))
