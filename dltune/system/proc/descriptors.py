"""The files that a process has open: /proc/PID/fd and /proc/PID/fdinfo."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from dltune.system.proc.entry import read


class Descriptor(NamedTuple):
    """`place`: a path to the file itself, whatever its own now shows."""

    number: int
    place: str
    status: os.stat_result


class Position(NamedTuple):
    """Of a descriptor: bytes from the file's start, and its flags as open(2) takes them."""

    at: int
    flags: int


def plain_files(pid: int) -> Iterator[Descriptor]:
    """Those that a process has open to read. Raises OSError when it has ended or may not be looked
    into."""
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
    """What a descriptor shows: the path of a file, which may end with " (deleted)", else such as
    "socket:[123]"; None when it is closed or may not be seen."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - as above
    return None


def position(pid: int, number: int) -> Position | None:
    """None when the descriptor is closed or may not be seen."""
    told = (read(f"/proc/{pid}/fdinfo/{number}") or b"").split()
    return Position(int(told[1]), int(told[3], 8)) if told else None
