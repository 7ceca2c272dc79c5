"""What threads used of the cores since they were first seen; what an ended one had, stays."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from dltune.horovod.watch.roles import Told
from dltune.job.processes import parse_stat, read
from dltune.machine import cpulist

_STATUS = re.compile(
    rb"^(Cpus_allowed_list|voluntary_ctxt_switches|nonvoluntary_ctxt_switches):\s+(\S+)", re.M
)


@dataclass(frozen=True)
class Counts:
    """A thread's since it began, times in seconds. `queued`: ready, while another thread had its
    core; None where the kernel keeps no scheduler statistics. `started`: ticks since boot."""

    comm: str
    state: str
    started: int
    cpu: float
    user: float
    system: float
    queued: float | None
    voluntary: int
    involuntary: int
    cpus: frozenset[int]


def counts(pid: int, tid: int, last: Counts | None) -> Counts | None:
    """A thread's counts; None when it has ended. `last`: what they were, if they are known."""
    folder = f"/proc/{pid}/task/{tid}"
    scheduled = (read(f"{folder}/schedstat") or b"").split()
    if last and scheduled and int(scheduled[0]) / 1e9 == last.cpu and last.cpu > 0:
        return last  # it has not run since
    data, status = read(f"{folder}/stat"), read(f"{folder}/status")
    if not data or not status:
        return None
    stat = parse_stat(data)
    told = {match[1]: match[2] for match in _STATUS.finditer(status)}
    return Counts(
        comm=stat.name,
        state=stat.state,
        started=stat.started,
        cpu=int(scheduled[0]) / 1e9 if scheduled else stat.user + stat.kernel,
        user=stat.user,
        system=stat.kernel,
        queued=int(scheduled[1]) / 1e9 if scheduled else None,
        voluntary=int(told.get(b"voluntary_ctxt_switches", 0)),
        involuntary=int(told.get(b"nonvoluntary_ctxt_switches", 0)),
        cpus=cpulist.parse(told.get(b"Cpus_allowed_list", b"").decode()),
    )


def process_cpu(pid: int) -> float | None:
    """CPU seconds of a process, of threads that have ended too; None when it has ended itself."""
    try:
        # the clock that clock_getcpuclockid(3) gives for it
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


@dataclass
class ThreadSeen:
    """`first`: what it had when it was first seen, None for one that began since. `since`, `until`:
    when it was looked at first and last, of time.monotonic(). `told`: its role, None until it was
    seen at rest."""

    first: Counts | None
    last: Counts
    since: float
    until: float
    told: Told | None = None

    @property
    def born(self) -> bool:
        """It began while it was watched."""
        return self.first is None

    def look(self, now: float, new: Counts) -> None:
        self.last, self.until = new, now

    def used(self) -> Counts:
        """The growth of every count."""
        last, first = self.last, self.first
        if first is None:
            return last
        return Counts(
            comm=last.comm,
            state=last.state,
            started=last.started,
            cpu=max(0.0, last.cpu - first.cpu),
            user=max(0.0, last.user - first.user),
            system=max(0.0, last.system - first.system),
            queued=None
            if last.queued is None or first.queued is None
            else max(0.0, last.queued - first.queued),
            voluntary=max(0, last.voluntary - first.voluntary),
            involuntary=max(0, last.involuntary - first.involuntary),
            cpus=last.cpus,
        )
