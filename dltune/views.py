"""Views: a document as people see it, in sections of sentences, tables and figures, as data. A
terminal (`cli/terminal.py`) and a page (`report/`) draw the same view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from dltune.base.formatting import Course, Drawn, Key, Ratios, Shares, Table, Tiles
from dltune.schemas.diagnosis import Finding

S = TypeVar("S", bound=msgspec.Struct)


class Headline(msgspec.Struct, frozen=True):
    """A sentence of "what was found". Of all, a page shows the three of the lowest `rank`:
    0 is a verdict by measurement, 1 a decision, 2 where the time goes, 3 why."""

    rank: int
    sentence: str


class Findings(msgspec.Struct, frozen=True):
    """Findings, the most costly first. `ranked`: numbered on a terminal."""

    findings: Sequence[Finding]
    ranked: bool = False


class Unobserved(msgspec.Struct, frozen=True):
    """Sentences about what could not be observed. A page has them as remarks."""

    sentences: Sequence[str]


class Picture(msgspec.Struct, frozen=True):
    """A figure that only a page shows. `draw` returns its markup, in which identifiers begin with
    the argument. It is called only if there is a page."""

    draw: Callable[[str], Drawn]


class Only(msgspec.Struct, frozen=True):
    """A piece that only one renderer shows."""

    medium: Literal["terminal", "page"]
    piece: Piece


def on_terminal(*pieces: Piece) -> list[Piece]:
    return [Only("terminal", piece) for piece in pieces]


def on_page(*pieces: Piece) -> list[Piece]:
    """Return the pieces so that only a page shows them."""
    return [Only("page", piece) for piece in pieces]


class Section(msgspec.Struct, frozen=True):
    """Sentences, tables and figures under a title. `name`: unique in its view, part of a link.
    `title`: the entry in the list of contents."""

    name: str
    title: str
    body: Sequence[Piece]


class View(msgspec.Struct, frozen=True):
    """A document, or a section of a plan. `head`: pairs (name, value) that say where the document
    comes from. `remarks`: warnings for a page, which iterates over them once."""

    sections: Sequence[Section] = ()
    headlines: Sequence[Headline] = ()
    title: str = ""
    head: Sequence[tuple[str, str]] = ()
    remarks: Iterable[str] = ()


class Slice(msgspec.Struct, frozen=True):
    """Work on a track from `start` to `end`, in whole nanoseconds from the begin of the step.
    `kind`: slices of the same kind have the same colour. `bytes`: the size of a transfer."""

    name: str
    kind: str
    start: int
    end: int
    bytes: int = 0


class Track(msgspec.Struct, frozen=True):
    """The slices of one resource, in order of time, without overlap."""

    label: str
    slices: Sequence[Slice]


class Schedule(msgspec.Struct, frozen=True):
    """A step on several resources, each with its own track."""

    title: str
    devices: Sequence[Track]
    links: Sequence[Track]

    @property
    def end(self) -> int:
        tracks = (*self.devices, *self.links)
        return max((each.end for track in tracks for each in track.slices), default=0)


# what a section consists of; a key is a line that a terminal cuts to its width
Piece: TypeAlias = (
    str
    | Key
    | Table
    | Ratios
    | Course
    | Tiles
    | Shares
    | Schedule
    | Findings
    | Unobserved
    | Picture
    | Only
)


class Loaded(msgspec.Struct, frozen=True):
    """A document and its file. `kind`: the name in its schema, such as "dltune.profile".
    `prefix`: the begin of all identifiers of its view."""

    path: Path
    kind: str
    document: msgspec.Struct
    prefix: str


class Context(msgspec.Struct, frozen=True):
    """The documents of a page, so that a plan finds its profile and a bench its plan; none on a
    terminal. `top`: the number of ops or rows to print there."""

    documents: Sequence[Loaded] = ()
    top: int | None = None

    def of(self, kind: type[S]) -> list[S]:
        """Return the documents of this type."""
        documents = (loaded.document for loaded in self.documents)
        return [document for document in documents if isinstance(document, kind)]
