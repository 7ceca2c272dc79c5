"""How the processes of a session stand, and waiting until they do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from dltune.system.proc import stat as tree


def states(session: int) -> set[str]:
    found = set()
    for pid in tree.session(session):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            stat = Path(f"/proc/{pid}/stat").read_text()
            found.add(stat.rpartition(")")[2].split()[0])
    return found


def soon(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 120
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()
