"""The plan's section on reading data: for each file, how the job should read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

Access = Literal["sequential", "strided", "shuffled"]
# what can be done from outside: hints ahead of where the job reads; the whole file once
Follow = Literal["ahead", "whole"]


class ReaderPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `dltune.io.Reader`, which tells what they mean. Sizes in bytes."""

    node: bool
    direct: bool
    memory: int
    block: int
    gap: int
    parallel: int
    stagger: int | None = None


class FilePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the file at `path` is read.

    `access`: the order in which the job wants its records. `reader`: for a job that reads by
    `dltune.io` (None: no LMDB file). `ahead`: bytes of read-ahead hints, for `dltune.io.ReadAhead`
    and for `follow`; 0 for none. `follow`: what `dltune run` does for an unmodified job.
    """

    path: str
    access: Access
    reader: ReaderPlan | None
    ahead: int
    follow: Follow | None


class IoPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`report`: SHA-256 of the io document's content. `reasons`: why, a sentence each."""

    report: str
    files: tuple[FilePlan, ...]
    reasons: tuple[str, ...]

    def of(self, path: Path) -> FilePlan | None:
        """What is planned for the file at `path`; None when that is nothing."""
        wanted = os.path.realpath(path)
        return next((file for file in self.files if os.path.realpath(file.path) == wanted), None)


def faults(section: IoPlan) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    paths = [file.path for file in section.files]
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        yield f"io.files: {path} is there {paths.count(path)} times"
    for file in section.files:
        here = f"io.files ({file.path})"
        if file.ahead < 0:
            yield f"{here}.ahead: {file.ahead} is negative"
        if file.follow == "ahead" and not file.ahead:
            yield f"{here}.follow: hints ahead need `ahead`"
        if file.reader is not None:
            yield from _reader_faults(f"{here}.reader", file.reader)


def _reader_faults(here: str, reader: ReaderPlan) -> Iterator[str]:
    for name, least in (("memory", 4 * _PAGE), ("block", _PAGE), ("gap", 0), ("parallel", 1)):
        if getattr(reader, name) < least:
            yield f"{here}.{name}: {getattr(reader, name)} is below {least}"
    if reader.block % _PAGE:
        yield f"{here}.block: {reader.block} is no multiple of {_PAGE}"
    if reader.stagger is not None and reader.stagger < 1:
        yield f"{here}.stagger: {reader.stagger} lets no reader read"


_PAGE = 4096
