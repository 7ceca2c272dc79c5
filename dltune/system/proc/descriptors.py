"""The files that a process has open: /proc/PID/fd and /proc/PID/fdinfo."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from dltune.system.proc.entry import read


class Descriptor(NamedTuple):
    """A descriptor. `place`: a path to the file itself, whatever the file's path now refers to."""

    number: int
    place: str
    status: os.stat_result


class Position(NamedTuple):
    """A descriptor's position in bytes from the file's start, and its flags as in open(2)."""

    at: int
    flags: int


def plain_files(pid: int) -> Iterator[Descriptor]:
    """Yield the plain files that a process has open to read. Raises OSError when it has ended or
    cannot be inspected."""
    with os.scandir(f"/proc/{pid}/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for number in numbers:
        place = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):  # closed meanwhile
            # the link of a process is no path to resolve
            status = os.stat(place)  # noqa: PTH116
            if stat.S_ISREG(status.st_mode) and os.lstat(place).st_mode & stat.S_IRUSR:
                yield Descriptor(number, place, status)


def target(pid: int, number: int) -> str | None:
    """Return a descriptor's target: the path of a file, which can end with " (deleted)", else text
    such as "socket:[123]"; None when it is closed or access is denied."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - as above
    return None


def position(pid: int, number: int) -> Position | None:
    """Return the position; None when the descriptor is closed or access is denied."""
    told = (read(f"/proc/{pid}/fdinfo/{number}") or b"").split()
    return Position(int(told[1]), int(told[3], 8)) if told else None
