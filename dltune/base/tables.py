"""A table as it is meant, before it is drawn: on a terminal by `cli/tables.py`, on a page by
`report/table.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True)
class Column:
    """`right`: aligned to the right, and on a page sorted as numbers. `page`: too wide or too fine
    for a terminal, which leaves it out. A column without a head is not sorted by."""

    head: str
    right: bool = False
    page: bool = False


def columns(*heads: str) -> tuple[Column, ...]:
    """Columns of the heads: ">" before a head aligns right, "+" before all keeps it for a page."""
    return tuple(Column(head.lstrip("+>"), ">" in head[:2], head[:1] == "+") for head in heads)


@dataclass(frozen=True)
class Key:
    """The long name of an op, a tensor or a file. A terminal gives it the width that the other
    columns leave, and cuts it at its end, or at its beginning where the `end` identifies it."""

    text: str
    end: bool = False


@dataclass(frozen=True)
class Prose:
    """A sentence: wrapped on a page, cut on a terminal."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A number in words that do not sort, as "1.5 GiB": a page sorts by `value`, None last."""

    text: str
    value: float | None


@dataclass(frozen=True)
class Bar:
    """A share between 0 and 1 that a page draws, and a terminal leaves to the figure next to it."""

    share: float
    chosen: bool = False


class Drawn(Protocol):
    """Markup, for a page alone."""

    def __html__(self) -> str: ...


Cell: TypeAlias = str | Key | Prose | Figure | Bar | Drawn


@dataclass(frozen=True)
class Ratio:
    """`low`, `high`: the interval's ends, None where there is none yet. `ratio` None: nothing was
    measured, and the row has its text alone. `style` is a class of the page."""

    name: str
    text: str
    style: str
    ratio: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Ratios:
    """A picture of ratios around 1, one below the other, which a page draws; on a terminal a table
    says the same. `left`, `right`: the meaning of that side of 1."""

    rows: Sequence[Ratio]
    left: str
    right: str


@dataclass(frozen=True)
class Series:
    """`values`: the highest within each of so many equal parts of `seconds`."""

    name: str
    seconds: float
    values: Sequence[float]


@dataclass(frozen=True)
class Course:
    """A picture of amounts over time, in this unit, one below the other on the same axes."""

    title: str
    series: Sequence[Series]
    unit: str


@dataclass(frozen=True)
class Tile:
    """A rectangle cut into rows of parts. Each part lists its colours: several where it is there
    several times. `text`: its description."""

    name: str
    text: str
    parts: Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Tiles:
    """A picture of a divided whole, which a page draws; on a terminal a table says the same.
    `colours`: the meaning of each."""

    title: str
    colours: Sequence[str]
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Shares:
    """A picture of parts of a whole, each with its text and its share, for a page alone."""

    title: str
    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Table:
    """Cells in rows, one for each column. Cells can contain names from other people's jobs; the
    renderers make them safe. `sorted_by`: the column by which the rows are sorted, highest first.
    `name`: part of links on a page, unique in its view. `most`, `most_on_page`: print or draw at
    most so many rows. `gap`: print an empty line before it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    sorted_by: int | None = None
    name: str = ""
    most: int | None = None
    most_on_page: int | None = None
    gap: bool = True
