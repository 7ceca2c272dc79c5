"""Threads of tf.data, which begin when a job reads its data, onto the cores planned for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from dltune.system.proc import stat
from dltune.system.proc.process import mappings
from dltune.systems.ranks.horovod.watch import horovod_library
from dltune.systems.ranks.horovod.watch.memory import Memory
from dltune.systems.ranks.horovod.watch.roles import Roles

# samples of a thread that ran in each of them, after which it is left where it is
PATIENCE = 30


class InputThreads:
    """The input threads of one process. `moved`: how many so far; `unseen`: why they cannot be
    identified."""

    def __init__(self, pid: int, cpus: Collection[int]) -> None:
        self.moved = 0
        self.unseen: str | None = None
        self._pid = pid
        self._cpus = cpus
        self._looks: dict[int, int] = {}
        self._roles: Roles | None = None

    def move(self) -> None:
        """Those that have begun since the last time."""
        if self.unseen:
            return
        try:
            fresh = [t for t in stat.threads(self._pid) if self._looks.get(t, 0) < PATIENCE]
            if not fresh:
                return
            if self._roles is None:
                mapped = mappings(self._pid)
                found = horovod_library.find(self._pid, mapped)
                if found is None:
                    self.unseen = "Horovod's library was not found in the process"
                    return
                self._roles = Roles(self._pid, mapped, found)
            with Memory(self._pid) as memory:
                for thread in fresh:
                    self._look(self._roles, memory, thread)
        except PermissionError as error:
            self.unseen = f"this user may not read the process's memory ({error.strerror})"
        except OSError:
            return  # it has ended

    def _look(self, roles: Roles, memory: Memory, thread: int) -> None:
        name = stat.thread_name(self._pid, thread)
        if name is None:
            return
        told = roles.tell(memory, thread, name)
        self._looks[thread] = PATIENCE if told else self._looks.get(thread, 0) + 1
        if told and told.role == "input":
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, self._cpus)
                self.moved += 1
