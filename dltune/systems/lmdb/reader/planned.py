"""Options that a plan has for a file: what `dltune plan io` decided, read by the job itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.options import Options

if TYPE_CHECKING:
    from dltune.systems.lmdb.section import FilePlan, IoPlan

VARIABLE = "DLTUNE_IO"  # set by `dltune run`: a file with the plan's section on files
AHEAD = 16 << 20  # bytes of read-ahead hints without a plan


def planned(path: Path) -> Options:
    """The options that the job's plan has for the data file at `path`; the defaults without a plan
    or when it has none for this file. Raises UsageError when that is not one of dltune's.
    """
    file = _file(path)
    return Options(**msgspec.structs.asdict(file.reader)) if file and file.reader else Options()


def planned_ahead(path: Path) -> int:
    """Bytes of read-ahead hints that the job's plan has for the data file at `path`, 0 for none;
    `AHEAD` without. Raises UsageError when that is not one of dltune's."""
    file = _file(path)
    return AHEAD if file is None else file.ahead


def write(section: IoPlan, path: Path) -> None:
    """The section for the readers of a job that has `path` in VARIABLE."""
    path.write_bytes(msgspec.json.encode(section))


def use(section: IoPlan) -> None:
    """Set the plan for the readers of this process, whatever VARIABLE says."""
    global _used
    _used = section


def _file(path: Path) -> FilePlan | None:
    """Return the job's plan for the data file at `path`; None for nothing."""
    section, source = _used, os.environ.get(VARIABLE)
    if section is None and source:
        from dltune.systems.lmdb.section import IoPlan

        try:
            section = msgspec.json.decode(Path(source).read_bytes(), type=IoPlan)
        except FileNotFoundError:  # of a rank on another node than dltune's: it runs plain
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(
                f"{VARIABLE}={source} was not set by dltune run: {error}",
                remedy=f"unset {VARIABLE}",
            ) from None
    return section.of(path) if section else None


_used: IoPlan | None = None
