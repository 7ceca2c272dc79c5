"""Prediction of an op's time at any thread count and placement, measured or not (section III-C).

A performance model (`Model`) predicts ops by their keys. `Curve` is the curve of one op.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dltune.schemas.machine import Machine
from dltune.schemas.plan import Candidate
from dltune.schemas.profile import Op, OpTime, Placement
from dltune.system.topology import placements

Case = tuple[int, Placement]

_OTHER: dict[Placement, Placement] = {"spread": "shared", "shared": "spread"}


def all_cases(machine: Machine) -> tuple[Case, ...]:
    """Every thread count in each of its placements: 68 on the paper's machine."""
    counts = range(1, len(machine.cores) + 1)
    return tuple((n, placement) for n in counts for placement in placements(machine, n))


@dataclass(frozen=True)
class Curve:
    """Predicted time of an op at any thread count and placement (section III-C).

    Between two measured counts of one placement, the time is interpolated linearly, as in the
    paper. The paper does not describe the ends, so these rules apply:

    - One thread has no placement; its time begins both curves.
    - Above the highest measured count, climbing stopped because the time rose. So it goes on rising
      as steeply as in the last measured stretch; where the time did not rise, it stays as it was.
    - Below the lowest measured count, when one thread was not measured, the time of the lowest
      holds.
    - A placement without any sample of more than one thread takes the other one's curve.

    Linear interpolation puts every minimum on a measured count, so the best choice is a measured
    one.

    `points`: per placement its measured (threads, seconds), by rising threads.
    """

    points: Mapping[Placement, tuple[tuple[int, float], ...]]

    @classmethod
    def measured(cls, times: Iterable[OpTime]) -> Curve:
        """From an op's measurements; the fastest sample of each case counts.

        Whatever else runs on the machine only makes an op slower, and slows many threads more than
        few: medians of a busy moment would hide how an op scales. Two profiles of one job differ by
        4 % in their minima where their medians differ by 30 %. What the job loses to such company
        is left to the calibration (dltune.simulate.workload).
        Raises ValueError when there are none.
        """
        return cls.of({(time.threads, time.placement): time.min for time in times})

    @classmethod
    def of(cls, samples: Mapping[Case, float]) -> Curve:
        """From seconds per (threads, placement). Raises ValueError when there are none."""
        if not samples:
            raise ValueError("an op without measurements has no curve")
        one = min((s for (n, _), s in samples.items() if n == 1), default=None)
        start = [] if one is None else [(1, one)]
        found: dict[Placement, tuple[tuple[int, float], ...]] = {}
        for placement in _OTHER:
            more = sorted((n, s) for (n, p), s in samples.items() if p == placement and n > 1)
            found[placement] = (*start, *more)
        for placement, other in _OTHER.items():
            if len(found[placement]) <= len(start):
                found[placement] = found[other]
        return cls(found)

    def scaled(self, factor: float) -> Curve:
        """All its times by this factor."""
        return Curve(
            {p: tuple((n, s * factor) for n, s in points) for p, points in self.points.items()}
        )

    @property
    def serial(self) -> float:
        """Seconds on one thread."""
        return self.seconds(1, "spread")

    def seconds(self, threads: int, placement: Placement) -> float:
        """Predicted seconds; `threads` is at least 1."""
        points = self.points[placement]
        index = bisect.bisect_left(points, threads, key=lambda point: point[0])
        if index < len(points) and points[index][0] == threads:
            return points[index][1]
        if index == 0:
            return points[0][1]
        if index == len(points):
            if len(points) == 1:
                return points[0][1]
            (n0, s0), (n1, s1) = points[-2:]
            return s1 + max(0.0, (s1 - s0) / (n1 - n0)) * (threads - n1)
        (n0, s0), (n1, s1) = points[index - 1 : index + 1]
        return s0 + (s1 - s0) * (threads - n0) / (n1 - n0)

    def best(self, cases: Iterable[Case]) -> Candidate:
        """The fastest of `cases`; the fewest threads where several are.

        Raises ValueError when `cases` is empty.
        """
        seconds, threads, placement = min(
            ((self.seconds(n, p), n, p) for n, p in cases), key=lambda found: found[:2]
        )
        return Candidate(threads, placement, seconds)

    def corners(self, counts: Mapping[Placement, Sequence[int]]) -> list[Case]:
        """Of the thread counts that a machine offers per placement (rising), those that can be the
        best: lines bend at measured counts only, so the offered neighbours of these and the ends.
        """
        found: list[Case] = []
        for placement, offered in counts.items():
            kept = {0, len(offered) - 1} if offered else set()
            for threads, _ in self.points[placement]:
                at = bisect.bisect_left(offered, threads)
                kept.update(i for i in (at - 1, at) if 0 <= i < len(offered))
            found += ((offered[i], placement) for i in sorted(kept))
        return found


class Prediction(NamedTuple):
    """`error`: the truth is likely within `seconds` plus or minus this, in seconds."""

    seconds: float
    error: float


class Model(Protocol):
    """A performance model: it gives an op's seconds at a case, and how far off they can be.

    There are two: `HillClimbing` and `dltune.simulate.regression.Regression`.
    """

    def predict(self, key: str, threads: int, placement: Placement) -> Prediction:
        """Raises KeyError for an op that the model knows nothing of, or no such case."""
        ...


@dataclass(frozen=True)
class HillClimbing:
    """The paper's second model, the simplest: an op's own curve, found by hill climbing (III-C).

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
