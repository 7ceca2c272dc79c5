"""The threads of a process, and the counts of each thread since it began."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from dltune.system.proc import stat
from dltune.system.proc.entry import read
from dltune.system.proc.stat import Stat

# lists of a process whose threads end all the time
_LISTS = 5
_STATUS = re.compile(
    rb"^Cpus_allowed_list:\s*(\S*)$.*?"
    rb"^voluntary_ctxt_switches:\s+(\d+)\nnonvoluntary_ctxt_switches:\s+(\d+)",
    re.M | re.S,
)


class Counts(NamedTuple):
    """A thread's counts. `cpu` in seconds; `queued`: seconds ready while another thread had its
    CPU, None if the kernel keeps no scheduler statistics. `voluntary` and `involuntary` context
    switches. `cpus`: its allowed CPUs, as a list of the kernel's ("0-3,8")."""

    stat: Stat
    cpu: float
    queued: float | None
    voluntary: int
    involuntary: int
    cpus: str

    def since(self, first: Counts) -> Counts:
        """The growth of every count."""
        return Counts(
            self.stat.since(first.stat),
            max(0.0, self.cpu - first.cpu),
            None
            if self.queued is None or first.queued is None
            else max(0.0, self.queued - first.queued),
            max(0, self.voluntary - first.voluntary),
            max(0, self.involuntary - first.involuntary),
            self.cpus,
        )


def threads(pid: int) -> set[int]:
    """Return the threads of a process; none when it has ended.

    The kernel goes from thread to thread: a list that meets a thread as it ends goes on by its
    place, and leaves out the next thread, which lives. The kernel's count of threads shows this.
    Threads missing in one list are in another, together with threads that have ended since.
    """
    folder = f"/proc/{pid}/task"
    listed: set[int] = set()
    try:
        for _ in range(_LISTS):
            links = Path(folder).stat().st_nlink  # two, and one for each thread
            with os.scandir(folder) as entries:
                lists = {int(entry.name) for entry in entries}
            listed |= lists
            if len(lists) >= links - 2:
                break
    except OSError:
        return set()
    return listed


def counts(pid: int, tid: int, last: Counts | None = None) -> Counts | None:
    """Return a thread's counts; None when it has ended. `last`: its previous counts, if known: a
    thread that has not run since is not read again."""
    folder = f"/proc/{pid}/task/{tid}"
    scheduled = (read(f"{folder}/schedstat") or b"").split()
    cpu = int(scheduled[0]) / 1e9 if scheduled else None
    if last and cpu and cpu == last.cpu:
        return last
    data, switched = read(f"{folder}/stat"), switches(pid, tid)
    if not data or not switched:
        return None
    found = stat.parse(data)
    return Counts(
        found,
        found.user + found.kernel if cpu is None else cpu,
        int(scheduled[1]) / 1e9 if scheduled else None,
        *switched,
    )


def switches(pid: int, tid: int) -> tuple[int, int, str] | None:
    """`voluntary`, `involuntary` and `cpus` of `Counts`; None when the thread has ended."""
    found = _STATUS.search(read(f"/proc/{pid}/task/{tid}/status") or b"")
    return (int(found[2]), int(found[3]), found[1].decode()) if found else None


def name(pid: int, tid: int) -> str | None:
    """Return the kernel's name of a thread, at most 15 bytes; None when it has ended."""
    data = read(f"/proc/{pid}/task/{tid}/comm")
    return data.decode(errors="replace").rstrip("\n") if data else None
