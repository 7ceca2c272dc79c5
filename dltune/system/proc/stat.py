"""/proc/PID/stat and /proc/PID/task/TID/stat, and what /proc/stat has of the whole machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from dltune.system.proc.entry import read

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
