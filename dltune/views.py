"""Views: a document as people see it, in sections of sentences, tables and figures, as data. A
terminal (`cli/tables.py`) and a page (`report/`) draw the same view."""

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
class Section:
    """Sentences, tables and figures under a title. `name`: unique in its view, part of a link.
    `title`: the entry in the list of contents."""

    name: str
    title: str
    body: Sequence[Piece]


@dataclass(frozen=True)
class View:
    """A document, or a section of a plan. `head`: pairs (name, value) that say where the document
    comes from. `remarks`: warnings about it."""

    sections: Sequence[Section] = ()
    headlines: Sequence[Headline] = ()
    title: str = ""
    head: Sequence[tuple[str, str]] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Slice:
    """Work on a track from `start` to `end`, in whole nanoseconds from the begin of the step.
    `kind`: slices of the same kind have the same colour. `bytes`: the size of a transfer."""

    name: str
    kind: str
    start: int
    end: int
    bytes: int = 0


@dataclass(frozen=True)
class Track:
    """The slices of one resource, in order of time, without overlap."""

    label: str
    slices: Sequence[Slice]


@dataclass(frozen=True)
class Schedule:
    """A step on several resources, each with its own track."""

    title: str
    devices: Sequence[Track]
    links: Sequence[Track]

    @property
    def end(self) -> int:
        tracks = (*self.devices, *self.links)
        return max((each.end for track in tracks for each in track.slices), default=0)
