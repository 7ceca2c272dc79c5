"""All derived figures of a profile, op by op and case by case."""

from __future__ import annotations

from dataclasses import dataclass

from dltune.analysis.convolution import filters
from dltune.analysis.flops import dtype, moved, operations
from dltune.analysis.rates import rates
from dltune.analysis.roofline import Measured, Position, Roofline, roofline
from dltune.schemas.profile import Op, Profile


@dataclass(frozen=True)
class Figures:
    """An op's work, in floating-point operations and bytes that must move, and its rate.

    `cases` as `Op.times`; `best` is the fastest of them, None for an op without times. `serial` is
    all its time in a round of the steps on one thread, in seconds; `share` its part of all ops'.
    """

    op: Op
    operations: int | None
    moved: int | None
    cases: tuple[Measured, ...]
    best: Measured | None
    position: Position | None
    serial: float
    share: float

    @property
    def one(self) -> float | None:
        """Seconds of a run on one thread; None when it was not measured there."""
        return self.on(1)

    def on(self, threads: int) -> float | None:
        """Seconds of a run on so many threads, where they are best placed; None when it was not
        measured there."""
        return _on(self.op, threads)


@dataclass(frozen=True)
class Analysis:
    """`ops`: in the order of their time on one thread, the longest first."""

    profile: Profile
    roofline: Roofline
    ops: tuple[Figures, ...]

    def top(self, count: int) -> list[Figures]:
        """The first of the ops that have times."""
        return [figures for figures in self.ops if figures.best][:count]


def analyse(profile: Profile) -> Analysis:
    known = filters(profile.ops)
    work = [(op, operations(op, known), moved(op)) for op in profile.ops]
    cases = [
        tuple(
            Measured(op, time, bytes_, rates(time, count, bytes_), dtype(op)) for time in op.times
        )
        for op, count, bytes_ in work
    ]
    every = (case for found in cases for case in found)
    roof = roofline(profile.machine, every, profile.roofs)
    serial = [(_on(op, 1) or 0.0) * op.count for op in profile.ops]
    whole = sum(serial) or 1.0
    found = []
    for (op, count, bytes_), of, seconds in zip(work, cases, serial, strict=True):
        best = min(of, key=lambda case: case.time.median, default=None)
        position = roof.position(best) if best else None
        found.append(Figures(op, count, bytes_, of, best, position, seconds, seconds / whole))
    found.sort(key=lambda figures: figures.serial, reverse=True)
    return Analysis(profile, roof, tuple(found))


def _on(op: Op, threads: int) -> float | None:
    return min((time.median for time in op.times if time.threads == threads), default=None)
