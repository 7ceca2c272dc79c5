"""Which processes belong together: those of a job's session, and those that descend from one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping

from dltune.base.errors import UsageError
from dltune.system.proc import stat
from dltune.system.proc.entry import read
from dltune.system.proc.stat import Stat
from dltune.system.proc.threads import threads


def processes() -> dict[int, Stat]:
    """All that there are now, by pid; zombies too."""
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {pid: found for pid in numbers if (found := stat.of_process(pid))}


def session(leader: int) -> dict[int, Stat]:
    """The processes of the leader's session, orphaned ones too, and all that descend from these,
    since torchrun gives each rank a session of its own: every process is looked at."""
    running = processes()
    own = [pid for pid, found in running.items() if found.session == leader]
    return {pid: running[pid] for pid in _with_descendants(own, running)}


def send(number: signal.Signals, leader: int) -> None:
    """A signal to all processes of the leader's session."""
    for pid in session(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(leader: int) -> set[int]:
    """The leader and its children, theirs, and so on: quickly, but not those that were orphaned."""
    found, new = set(), {leader}
    while new:
        found |= new
        new = {
            int(child)
            for pid in new
            for tid in threads(pid)
            for child in (read(f"/proc/{pid}/task/{tid}/children") or b"").split()
        } - found
    return found


def _with_descendants(members: Iterable[int], running: Mapping[int, Stat]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, one in running.items():
        children.setdefault(one.parent, []).append(pid)
    found, waiting = set(members), list(members)
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return found


class Tree:
    """A process and all that descend from it. Who once belonged to it belongs to it still when its
    parent has ended and it was given another."""

    def __init__(self, root: int) -> None:
        """Raises UsageError when there is no such process."""
        found = stat.of_process(root)
        if found is None:
            raise UsageError(
                f"there is no process {root}",
                remedy="name a running process: ps -e, or pgrep -f NAME",
            )
        self.root = root
        self._started = {root: found.started}
        self.refresh()

    def refresh(self) -> list[int]:
        """The processes that run now, the root first; a zombie counts as ended."""
        running = {pid: found for pid, found in processes().items() if not found.ended}
        known = [pid for pid, found in running.items() if self._started.get(pid) == found.started]
        members = _with_descendants(known, running)
        self._started |= {pid: running[pid].started for pid in members}
        return sorted(members, key=lambda pid: (pid != self.root, pid))

    def started(self, pid: int) -> int:
        """When a member began, in ticks since boot."""
        return self._started[pid]
