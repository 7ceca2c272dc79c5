"""The kernel's account of time lost waiting (PSI): of the machine, and of the job's cgroup."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Literal

from dltune.schemas.io import Pressure

_TOTAL = re.compile(r"^(some|full) .*total=(\d+)", re.M)
Resource = Literal["io", "memory", "cpu"]
RESOURCES: tuple[Resource, ...] = ("io", "memory", "cpu")


class PressureWatch:
    """Totals now, against those when this was made."""

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        """`pid`: whose cgroup is meant; `root`: where `proc` and `sys` are found."""
        self._places: list[tuple[Resource, str, Path]] = []
        group = _cgroup(pid, root)
        for resource in RESOURCES:
            self._places.append((resource, "machine", root / "proc/pressure" / resource))
            if group is not None:
                self._places.append((resource, "job", group / f"{resource}.pressure"))
        self._since = time.monotonic()
        self._first = {(r, of): _totals(path) for r, of, path in self._places}

    def shares(self) -> tuple[Pressure, ...]:
        """Since then; nothing on a kernel without PSI."""
        seconds = time.monotonic() - self._since
        found = []
        for resource, of, path in self._places:
            first, now = self._first[resource, of], _totals(path)
            if seconds <= 0 or "some" not in first or "some" not in now:
                continue
            share = {
                kind: min(1.0, max(0.0, (now[kind] - first[kind]) / 1e6 / seconds))
                for kind in now.keys() & first
            }
            found.append(Pressure(resource, of, share["some"], share.get("full")))
        return tuple(found)


def _totals(path: Path) -> dict[str, int]:
    """Microseconds."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    return {match[1]: int(match[2]) for match in _TOTAL.finditer(text)}


def _cgroup(pid: int, root: Path) -> Path | None:
    """The folder of the process's cgroup in version 2's tree, unless that is the whole machine."""
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    name = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    folders = (root / "sys/fs/cgroup" / name, root / "sys/fs/cgroup/unified" / name)
    return next((f for f in folders if name and (f / "io.pressure").exists()), None)
