"""The plan's section on reading data: how the job should read each file. Sizes are in bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import LABEL, Bound, at_least, repeated

Access = Literal["sequential", "strided", "shuffled"]
# what can be done from outside: hints ahead of where the job reads; the whole file once
Follow = Literal["ahead", "whole"]

_PAGE = 4096
_PAGES = Bound(f"a multiple of {_PAGE}, above 0", lambda size: size > 0 and size % _PAGE == 0)


class ReaderPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `dltune.systems.lmdb.Reader`. Sizes are in bytes.

    `node`: true if one process of a node reads for all its ranks, through shared memory.
    `direct`: true to read with `O_DIRECT`, without the page cache.
    `memory`: memory for records that are read ahead.
    `block`: largest request. Adjacent records are read with one request.
    `gap`: largest gap between two records that is read instead of skipped.
    `parallel`: requests in flight per reader.
    `stagger`: readers that can read at the same time; null for all.
    """

    node: bool
    direct: bool
    memory: Annotated[int, at_least(4 * _PAGE)]
    block: Annotated[int, _PAGES]
    gap: Annotated[int, at_least(0)]
    parallel: Annotated[int, at_least(1)]
    stagger: Annotated[int | None, at_least(1)] = None


class FilePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a file is read.

    `path`: the file.
    `access`: order in which the job needs its records.
    `reader`: options for a job that reads with `dltune.systems.lmdb`; null for a file that
      is not LMDB.
    `ahead`: bytes of read-ahead hints; 0 for none.
    `follow`: action of `dltune run` for an unmodified job: `ahead`: hints ahead of its read
      position; `whole`: read the whole file once; null: nothing.
    """

    path: Annotated[str, LABEL]
    access: Access
    reader: ReaderPlan | None
    ahead: Annotated[int, at_least(0)]
    follow: Follow | None

    def relation_faults(self) -> Iterator[str]:
        if self.follow == "ahead" and self.ahead == 0:
            yield from at_least(1, "for hints ahead").of("", self, "ahead")


class IoPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How data files are read.

    `report`: SHA-256 of the io document's content.
    `files`: decisions per file.
    `reasons`: explanations, one sentence each.
    """

    report: str
    files: tuple[FilePlan, ...]
    reasons: tuple[str, ...]

    def of(self, path: Path) -> FilePlan | None:
        """Return the plan for the file at `path`; None when there is none."""
        wanted = os.path.realpath(path)
        return next((file for file in self.files if os.path.realpath(file.path) == wanted), None)

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("files", "path", (file.path for file in self.files))
