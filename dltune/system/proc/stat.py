"""Counts of processes, threads and CPUs, and trees of processes.

The counts run from the start of a thread, process or machine. They come from /proc/PID/stat,
/proc/PID/task/TID and /proc/stat. Processes belong together when they are in a job's session or
descend from one process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from dltune.base.errors import UsageError
from dltune.system.kernel_files import read

# /proc/PID/stat and /proc/PID/task/TID/stat, and the counts of the whole machine in /proc/stat

TICK = 1.0 / os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """Counts and state of a process, or of one of its threads. Times are in seconds; `started` is
    in ticks since boot, and identifies a process together with its number.

    `minor` and `major`: page faults. `children_cpu` and `children_faults`: the sums of a process's
    children that have ended. `exit_code`: the status of a zombie as wait(2) returns it; 0 without
    the permission to inspect the process.
    """

    name: str
    state: str
    parent: int
    session: int
    minor: int
    major: int
    user: float
    kernel: float
    children_cpu: float
    children_faults: int
    started: int
    exit_code: int

    @property
    def ended(self) -> bool:
        """True for a zombie: it has ended, and its parent has not waited for it yet."""
        return self.state in "ZX"

    def since(self, first: Stat) -> Stat:
        """Return this state with the growth of its own counts in place of the counts."""
        return self._replace(
            minor=max(0, self.minor - first.minor),
            major=max(0, self.major - first.major),
            user=max(0.0, self.user - first.user),
            kernel=max(0.0, self.kernel - first.kernel),
        )


def parse(data: bytes) -> Stat:
    """Parse the file. The name can contain any text, also spaces and parentheses; the last closing
    parenthesis ends it."""
    head, _, tail = data.rpartition(b")")
    fields = tail.split()
    return Stat(
        name=head.partition(b"(")[2].decode(errors="replace"),
        state=chr(fields[0][0]),
        parent=int(fields[1]),
        session=int(fields[3]),
        minor=int(fields[7]),
        major=int(fields[9]),
        user=int(fields[11]) * TICK,
        kernel=int(fields[12]) * TICK,
        children_cpu=(int(fields[13]) + int(fields[14])) * TICK,
        children_faults=int(fields[8]) + int(fields[10]),
        started=int(fields[19]),
        exit_code=int(fields[49]),
    )


def of_process(pid: int) -> Stat | None:
    data = read(f"/proc/{pid}/stat")
    return parse(data) if data else None


def state(pid: int, tid: int) -> str | None:
    """Return only the state of a thread, for callers that need it many times a second."""
    data = read(f"/proc/{pid}/task/{tid}/stat")
    return chr(data[data.rindex(b")") + 2]) if data else None


def stolen() -> float:
    """Return the seconds of all CPUs that the hypervisor has given to other machines so far."""
    data = read("/proc/stat") or b""
    fields = data.partition(b"\n")[0].split()
    return int(fields[8]) * TICK if len(fields) > 8 else 0.0


def busy() -> dict[int, float]:
    """Return the seconds that programs, and the kernel for them, have run on each CPU so far."""
    lines = Path("/proc/stat").read_text().splitlines()  # with many CPUs, longer than `read` reads
    return {
        int(name[3:]): sum(map(int, times[:3])) * TICK
        for name, *times in map(str.split, lines)
        if name.startswith("cpu") and name != "cpu"
    }


def now() -> float:
    """Return the ticks since boot, the clock of `Stat.started`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) / TICK


# The threads of a process, and the counts of each thread since it began

# the most lists that are read of a process whose threads end all the time
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
        """Return the growth of every count since `first`."""
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

    The kernel goes from thread to thread. If a thread ends just then, the kernel continues by its
    place and omits the next thread, which is alive. The kernel's count of threads shows this. A
    thread missing in one list is in another, together with threads that have ended since.
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
    found = parse(data)
    return Counts(
        found,
        found.user + found.kernel if cpu is None else cpu,
        int(scheduled[1]) / 1e9 if scheduled else None,
        *switched,
    )


def switches(pid: int, tid: int) -> tuple[int, int, str] | None:
    """Return `voluntary`, `involuntary` and `cpus` of `Counts`; None when the thread has ended."""
    found = _STATUS.search(read(f"/proc/{pid}/task/{tid}/status") or b"")
    return (int(found[2]), int(found[3]), found[1].decode()) if found else None


def thread_name(pid: int, tid: int) -> str | None:
    """Return the kernel's name of a thread, at most 15 bytes; None when it has ended."""
    data = read(f"/proc/{pid}/task/{tid}/comm")
    return data.decode(errors="replace").rstrip("\n") if data else None


# Which processes belong together: the members of a job's session, and the descendants of a process


def processes() -> dict[int, Stat]:
    """Return all present processes by pid, including zombies."""
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {pid: found for pid in numbers if (found := of_process(pid))}


def session(leader: int) -> dict[int, Stat]:
    """Return the processes of the leader's session, including orphaned processes, and all their
    descendants, because torchrun starts each rank in a new session. Reads every process."""
    running = processes()
    own = [pid for pid, found in running.items() if found.session == leader]
    return {pid: running[pid] for pid in _with_descendants(own, running)}


def send(number: signal.Signals, leader: int) -> None:
    """Send a signal to all processes of the leader's session and their descendants."""
    for pid in session(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(leader: int) -> set[int]:
    """Return the leader and its descendants. This is quick, but misses orphaned processes."""
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
    """A process and all its descendants. A member stays a member when its parent has ended and it
    was given another parent."""

    def __init__(self, root: int) -> None:
        """Raise UsageError when there is no such process."""
        found = of_process(root)
        if found is None:
            raise UsageError(
                f"there is no process {root}",
                remedy="name a running process: ps -e, or pgrep -f NAME",
            )
        self.root = root
        self._started = {root: found.started}
        self.refresh()

    def refresh(self) -> list[int]:
        """Return the members that run now, the root first; a zombie counts as ended."""
        running = {pid: found for pid, found in processes().items() if not found.ended}
        known = [pid for pid, found in running.items() if self._started.get(pid) == found.started]
        members = _with_descendants(known, running)
        self._started |= {pid: running[pid].started for pid in members}
        return sorted(members, key=lambda pid: (pid != self.root, pid))

    def started(self, pid: int) -> int:
        """Return the start of a member, in ticks since boot."""
        return self._started[pid]
