"""Options that a plan has for a file: what `dltune plan io` decided, read by the job itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dltune.errors import UsageError
from dltune.io.reader.options import Options

if TYPE_CHECKING:
    from dltune.documents.sections.io import IoPlan

VARIABLE = "DLTUNE_IO"  # set by `dltune run`: a file with the plan's section on files
AHEAD = 16 << 20  # bytes of read-ahead hints without a plan


def planned(path: Path) -> Options:
    """The options that the job's plan has for the data file at `path`; the defaults without a plan
    or when it has none for this file. Raises UsageError when that is not one of dltune's.
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
    without. Raises UsageError when that is not one of dltune's."""
    section = _section()
    found = None if section is None else section.of(path)
    return AHEAD if found is None or not found.ahead else found.ahead


def write(section: IoPlan, path: Path) -> None:
    """The section for the readers of a job that has `path` in VARIABLE."""
    import msgspec

    path.write_bytes(msgspec.json.encode(section))


def use(section: IoPlan) -> None:
    """What is planned for the readers of this process, whatever VARIABLE says."""
    global _used
    _used = section


def _section() -> IoPlan | None:
    source = os.environ.get(VARIABLE)
    if _used is not None or not source:
        return _used
    import msgspec

    from dltune.documents.sections.io import IoPlan

    try:
        return msgspec.json.decode(Path(source).read_bytes(), type=IoPlan)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{VARIABLE}={source} is not what dltune run sets: {error}", remedy=f"unset {VARIABLE}"
        ) from None


_used: IoPlan | None = None
