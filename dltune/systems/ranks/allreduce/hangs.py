"""Ranks of a running job that hang, looked for from outside now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dltune.system.proc.process import cpu_seconds
from dltune.system.proc.stat import counts
from dltune.systems.ranks.horovod.watch.hang import still_hung
from dltune.systems.ranks.horovod.watch.progress import Progress

# between two samples: a few small files of /proc for each rank
LOOK_SECONDS = 2.0


@dataclass
class Rank:
    """One whose hvd.init() is over. `threads`: those that it added, the background one first."""

    rank: int
    pid: int
    threads: tuple[int, ...]
    progress: Progress = field(default_factory=Progress)
    ended_at: float | None = None
    cycles: bool = True

    @property
    def background(self) -> int | None:
        return self.threads[0] if self.threads else None

    def look(self, now: float) -> bool:
        """Take a sample. True if the process still exists, with its background thread: in a process
        that was killed, that thread can end well before the main thread."""
        used = cpu_seconds(self.pid)
        found = [counts(self.pid, thread) for thread in self.threads]
        if used is None or not found or found[0] is None:
            return False
        # CPU time of a helper that has ended is only in the total of its process
        added = [one.cpu if one else 0.0 for one in found]
        self.progress.note(now, added[0], used - sum(added))
        return True


class Hangs:
    """Hangs of the ranks that were handed in. Each hang is reported once, and so is the rank's
    recovery.

    `over`: of ranks that hung when the first rank ended, a sentence each.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._ranks: dict[int, Rank] = {}  # by pid
        self._told: dict[int, str] = {}
        self._looked = 0.0
        self.over: list[str] = []

    def add(self, rank: int, pid: int, threads: tuple[int, ...]) -> None:
        self._ranks[pid] = Rank(rank, pid, threads)

    def ended(self) -> None:
        """A rank has: the others do not train on."""
        self.over += [f"{self._name(pid)} hung: {shown}" for pid, shown in self._told.items()]
        self._told.clear()
        self._ranks.clear()

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        there = [rank.look(now) for rank in self._ranks.values()]
        if not all(there):
            return
        found = still_hung(self._told, list(self._ranks.values()))
        for pid, shown in found.items():
            if pid not in self._told:
                self._say(f"{self._name(pid)} hangs, and the others wait for it: {shown}")
        for pid in self._told.keys() - found.keys():
            self._say(f"{self._name(pid)} continues")
        self._told = found

    def _name(self, pid: int) -> str:
        return f"rank {self._ranks[pid].rank} (pid {pid})"
