"""Text for people: safe names, figures in words, and tables before they are drawn.

Names and messages from other people's code become safe for a terminal or a file (`visible`).
Functions such as `size` and `share` write figures, as sentences and tables show them.

A `Table` and the pictures hold only the content. `cli/terminal.py` draws them on a terminal,
and `report/markup.py` on a page.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

LONGEST = 200


def visible(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, in characters that can be seen and written in order.

    Controls, direction marks and other formats, separators but the space, halves of surrogate
    pairs and unassigned characters become escapes; a text longer than `longest` loses its middle.
    """
    if len(text) > longest:
        head = longest * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


# Lists, figures and names of files, in the words of sentences and tables


def between_commas(text: str) -> list[str]:
    """The parts of a list, without the blanks around them, and without those that are empty."""
    return [part for part in map(str.strip, text.split(",")) if part]


def some(names: Sequence[str], most: int) -> str:
    """The first `most` of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(value: float | None) -> str:
    """Bytes: "812 B", "64 KiB", "1.5 GiB"; "?" for an unknown size."""
    if value is None:
        return "?"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << shift:
            scaled = value / (1 << shift)
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def rate(value: float | None) -> str:
    """Bytes a second."""
    return "?" if value is None else f"{size(value)}/s"


def share(value: float | None) -> str:
    """A share as a percentage; small ones with a decimal."""
    if value is None:
        return "?"
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"


def count(value: float | None) -> str:
    """A number of things, in groups of three digits."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def counted(number: int, noun: str) -> str:
    """Return "1 bin" for 1 and "2 bins" for 2."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def milliseconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g} ms"


def signal_name(number: int) -> str:
    """Return "SIGKILL" for 9, and "signal 40" for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def file_name(path: str) -> str:
    """The last part of a path, with its folder when it is a common name."""
    whole = Path(path)
    return f"{whole.parent.name}/{whole.name}" if whole.name == "data.mdb" else whole.name


# Tables and pictures. They are structs, which Python makes in a fortieth of the time of a frozen
# dataclass (four fields: 0.02 ms and 0.8 ms of CPU time on an EPYC): nearly every command imports
# them.


class Column(msgspec.Struct, frozen=True):
    """`right`: aligned to the right, and on a page sorted as numbers. `page`: too wide or too fine
    for a terminal, which leaves it out. A column without a head is not sorted by."""

    head: str
    right: bool = False
    page: bool = False


def columns(*heads: str) -> tuple[Column, ...]:
    """Columns of the heads: ">" before a head aligns right, "+" before all keeps it for a page."""
    return tuple(Column(head.lstrip("+>"), ">" in head[:2], head[:1] == "+") for head in heads)


class Key(msgspec.Struct, frozen=True):
    """The long name of an op, a tensor or a file. A terminal gives it the width that the other
    columns leave, and cuts it at its end, or at its beginning where the `end` identifies it."""

    text: str
    end: bool = False


class Prose(msgspec.Struct, frozen=True):
    """A sentence: wrapped on a page, cut on a terminal."""

    text: str


class Figure(msgspec.Struct, frozen=True):
    """A number in words that do not sort, as "1.5 GiB": a page sorts by `value`, None last."""

    text: str
    value: float | None


class Bar(msgspec.Struct, frozen=True):
    """A share between 0 and 1 that a page draws, and a terminal leaves to the figure next to it."""

    share: float
    chosen: bool = False


class Drawn(Protocol):
    """Markup, for a page alone."""

    def __html__(self) -> str: ...


Cell: TypeAlias = str | Key | Prose | Figure | Bar | Drawn


class Ratio(msgspec.Struct, frozen=True):
    """`low`, `high`: the interval's ends, None where there is none yet. `ratio` None: nothing was
    measured, and the row has its text alone. `style` is a class of the page."""

    name: str
    text: str
    style: str
    ratio: float | None
    low: float | None = None
    high: float | None = None


class Ratios(msgspec.Struct, frozen=True):
    """A picture of ratios around 1, one below the other, which a page draws; on a terminal a table
    says the same. `left`, `right`: the meaning of that side of 1."""

    rows: Sequence[Ratio]
    left: str
    right: str


class Series(msgspec.Struct, frozen=True):
    """`values`: the highest within each of so many equal parts of `seconds`."""

    name: str
    seconds: float
    values: Sequence[float]


class Course(msgspec.Struct, frozen=True):
    """A picture of amounts over time, in this unit, one below the other on the same axes."""

    title: str
    series: Sequence[Series]
    unit: str


class Tile(msgspec.Struct, frozen=True):
    """A rectangle cut into rows of parts. Each part lists its colours: several where it is there
    several times. `text`: its description."""

    name: str
    text: str
    parts: Sequence[Sequence[Sequence[int]]]


class Tiles(msgspec.Struct, frozen=True):
    """A picture of a divided whole, which a page draws; on a terminal a table says the same.
    `colours`: the meaning of each."""

    title: str
    colours: Sequence[str]
    tiles: Sequence[Tile]


class Shares(msgspec.Struct, frozen=True):
    """A picture of parts of a whole, each with its text and its share, for a page alone."""

    title: str
    parts: Sequence[tuple[str, float]]


class Table(msgspec.Struct, frozen=True):
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
