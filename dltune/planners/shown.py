"""What a planner shows of its section: on a terminal and on a page the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dltune.tables import Piece


@dataclass(frozen=True)
class Finding:
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
    findings: Sequence[Finding] = ()


def counted(number: int, noun: str) -> str:
    """As in "1 bin" and "2 bins"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
