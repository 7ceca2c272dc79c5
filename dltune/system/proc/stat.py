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
    """Of a process, or of one of its threads. Times are in seconds; `started` in ticks since boot,
    which with the number names a process for good.

    `minor` and `major` page faults. `children_cpu` and `children_faults` are of a process's
    children that have ended. `exit_code`: of a zombie, as wait(2) tells it; 0 for who may not look
    into the process.
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
        """A zombie, which nobody has waited for yet."""
        return self.state in "ZX"

    def since(self, first: Stat) -> Stat:
        """With the growth of what is counted of itself, in place of the counts."""
        return self._replace(
            minor=max(0, self.minor - first.minor),
            major=max(0, self.major - first.major),
            user=max(0.0, self.user - first.user),
            kernel=max(0.0, self.kernel - first.kernel),
        )


def parse(data: bytes) -> Stat:
    """The name may hold anything, parentheses and spaces too: the last one closes it."""
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
    """A thread's state alone, for who asks many times a second."""
    data = read(f"/proc/{pid}/task/{tid}/stat")
    return chr(data[data.rindex(b")") + 2]) if data else None


def stolen() -> float:
    """Seconds that the hypervisor gave to other machines, of all CPUs so far."""
    data = read("/proc/stat") or b""
    fields = data.partition(b"\n")[0].split()
    return int(fields[8]) * TICK if len(fields) > 8 else 0.0


def busy() -> dict[int, float]:
    """Seconds that programs, and the kernel for them, have run on each CPU so far."""
    lines = Path("/proc/stat").read_text().splitlines()  # longer than `read` reads, of many CPUs
    return {
        int(name[3:]): sum(map(int, times[:3])) * TICK
        for name, *times in map(str.split, lines)
        if name.startswith("cpu") and name != "cpu"
    }


def now() -> float:
    """Ticks since boot, the clock of `Stat.started`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) / TICK


# The threads of a process, and the counts of each thread since it began

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
    found = parse(data)
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


def thread_name(pid: int, tid: int) -> str | None:
    """Return the kernel's name of a thread, at most 15 bytes; None when it has ended."""
    data = read(f"/proc/{pid}/task/{tid}/comm")
    return data.decode(errors="replace").rstrip("\n") if data else None


# Which processes belong together: the members of a job's session, and the descendants of a process


def processes() -> dict[int, Stat]:
    """All that there are now, by pid; zombies too."""
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {pid: found for pid in numbers if (found := of_process(pid))}


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
        """The processes that run now, the root first; a zombie counts as ended."""
        running = {pid: found for pid, found in processes().items() if not found.ended}
        known = [pid for pid, found in running.items() if self._started.get(pid) == found.started]
        members = _with_descendants(known, running)
        self._started |= {pid: running[pid].started for pid in members}
        return sorted(members, key=lambda pid: (pid != self.root, pid))

    def started(self, pid: int) -> int:
        """When a member began, in ticks since boot."""
        return self._started[pid]
