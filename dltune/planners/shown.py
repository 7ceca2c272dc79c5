"""What a planner shows of its section: on a terminal and on a page the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dltune.tables import Piece


@dataclass(frozen=True)
class Headline:
    """A sentence of "what was found". Of all, a page shows the three of the lowest `rank`:
    0 is a verdict by measurement, 1 a decision, 2 where the time goes, 3 why."""

    rank: int
    sentence: str


@dataclass(frozen=True)
class Part:
    """`name`: unique in its section, part of a link. `title`: stands in a list of contents.
    `body`: sentences, tables and pictures, in order."""

    name: str
    title: str
    body: Sequence[Piece]


@dataclass(frozen=True)
class Shown:
    parts: Sequence[Part] = ()
    headlines: Sequence[Headline] = ()


@dataclass(frozen=True)
class Work:
    """From `start` to `end`, whole nanoseconds from a step's begin. `kind`: what it has in common
    with others; `bytes`: that are on their way."""

    name: str
    kind: str
    start: int
    end: int
    bytes: int = 0


@dataclass(frozen=True)
class Lane:
    """What one resource does, in order of time, one after the other."""

    label: str
    works: Sequence[Work]


@dataclass(frozen=True)
class Schedule:
    """A step in which each of several resources has its own to do."""

    title: str
    devices: Sequence[Lane]
    links: Sequence[Lane]

    @property
    def end(self) -> int:
        lanes = (*self.devices, *self.links)
        return max((work.end for lane in lanes for work in lane.works), default=0)


def counted(number: int, noun: str) -> str:
    """As in "1 bin" and "2 bins"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
