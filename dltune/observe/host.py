"""What goes on beside a job: other processes, the hypervisor, its control groups, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from dltune.documents.observation import Host, Neighbour
from dltune.machine import cgroups
from dltune.proc import process
from dltune.proc.entry import text
from dltune.proc.stat import TICK, Stat
from dltune.proc.tree import processes

# processes are named that have at least so much of a core
NAMED, MOST_NAMED = 0.05, 3


class HostWatch:
    """Counts now, against those when this was begun."""

    def __init__(self, pid: int) -> None:
        """`pid`: a process of the job, in whose control groups it runs."""
        self._pid = pid
        self._since = time.monotonic()
        self._processes = processes()
        self._stolen = _stolen()
        self._throttled = cgroups.throttled(pid)
        self._reclaims = cgroups.reclaims(pid)
        self._limits = cgroups.limits(pid=pid)

    def figures(self, job: Collection[int], own: Collection[int]) -> Host:
        """`job`: processes of the job; `own`: those that watch it."""
        seconds = max(time.monotonic() - self._since, TICK)
        used = {
            pid: now.user + now.kernel - _before(self._processes.get(pid), now)
            for pid, now in processes().items()
            if pid not in job and pid not in own
        }
        cores = {pid: max(0.0, cpu) / seconds for pid, cpu in used.items()}
        busiest = sorted(cores, key=lambda pid: -cores[pid])[:MOST_NAMED]
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        throttled = None
        now_throttled = cgroups.throttled(self._pid)
        if self._throttled is not None and now_throttled is not None:
            share = (now_throttled - self._throttled) / seconds / len(cpus)
            throttled = min(1.0, max(0.0, share))
        return Host(
            cpus=cpus,
            online=os.cpu_count() or len(cpus),
            quota=self._limits.quota,
            throttled=throttled,
            others=sum(cores.values()),
            neighbours=tuple(
                Neighbour(pid, process.command(pid) or "a thread of the kernel", cores[pid])
                for pid in busiest
                if cores[pid] >= NAMED
            ),
            stolen=max(0.0, _stolen() - self._stolen) / seconds,
            memory_limit=self._limits.memory,
            reclaims=max(0, cgroups.reclaims(self._pid) - self._reclaims) / seconds,
            available=_available(),
        )


def _before(first: Stat | None, now: Stat) -> float:
    """CPU seconds of a process when the watch began."""
    return first.user + first.kernel if first and first.started == now.started else 0.0


def _stolen() -> float:
    """Seconds that the hypervisor gave to others, of all CPUs so far."""
    fields = text(Path("/proc/stat")).partition("\n")[0].split()
    return int(fields[8]) * TICK if len(fields) > 8 else 0.0


def _available() -> int:
    for line in text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
