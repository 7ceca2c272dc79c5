"""Options that a plan has for a file: what `dltune plan io` decided, read by the job itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dltune.io.reader.options import Options

if TYPE_CHECKING:
    from dltune.documents.sections.io import IoPlan

VARIABLE = "DLTUNE_PLAN"  # set by `dltune run`: the plan's path
AHEAD = 16 << 20  # bytes of read-ahead hints without a plan


def planned(path: Path) -> Options:
    """The options that the job's plan has for the data file at `path`; the defaults without a plan
    or when it has none for this file. Raises UsageError when the plan cannot be read.
    """
    section = _section()
    found = None if section is None else section.of(path)
    if found is None or found.reader is None:
        return Options()
    reader = found.reader
    return Options(
        node=reader.node,
        direct=reader.direct,
        memory=reader.memory,
        block=reader.block,
        gap=reader.gap,
        parallel=reader.parallel,
        stagger=reader.stagger,
    )


def planned_ahead(path: Path) -> int:
    """Bytes of read-ahead hints that the job's plan has for the data file at `path`; `AHEAD`
    without. Raises UsageError when the plan cannot be read."""
    section = _section()
    found = None if section is None else section.of(path)
    return AHEAD if found is None or not found.ahead else found.ahead


def _section() -> IoPlan | None:
    source = os.environ.get(VARIABLE)
    if not source:
        return None
    from dltune.documents import plan as documents

    return documents.load(Path(source)).io
