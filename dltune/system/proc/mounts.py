"""The file systems that a process sees: /proc/PID/mountinfo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """`device`: "major:minor". `root`: the folder within the file system that is shown at `point`.
    `options` are of the file system (its super block), not of the mount."""

    device: str
    root: str
    point: str
    kind: str
    source: str
    options: frozenset[str]


def mounts(table: Path) -> list[Mount]:
    """In the order in which they were made; none where `table`, a mountinfo, cannot be read."""
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        own, _, shared = line.partition(" - ")
        # a source may be empty
        fields, tail = own.split(" "), shared.split(" ", 2)
        if len(fields) >= 5 and len(tail) == 3:
            kind, source, options = tail
            root, point = map(_plain, fields[3:5])
            found.append(
                Mount(fields[2], root, point, kind, _plain(source), frozenset(options.split(",")))
            )
    return found


def _plain(text: str) -> str:
    """Spaces and the like are written in octal."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
