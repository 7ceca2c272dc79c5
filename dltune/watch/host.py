"""Activity outside a job on its host, and the time that is lost waiting for resources."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from dltune.schemas.diagnosis import Host, Neighbour
from dltune.schemas.io import Pressure
from dltune.system import kernel_files, topology
from dltune.system.kernel_files import text
from dltune.system.proc import process
from dltune.system.proc.stat import TICK, Stat, busy, processes, stolen

# the parent of the kernel's own threads, which work for the job as well as for others
KERNEL = 2
# the namespace of pids that the kernel begins with (PROC_PID_INIT_INO)
_FIRST_PIDS = 0xEFFFFFFC
# processes are named that have at least so much of a core
NAMED, MOST_NAMED = 0.05, 3


class HostWatch:
    """A watch of other processes, the hypervisor, the job's control groups and memory. It compares
    counts at its end with counts at its beginning."""

    def __init__(self, pid: int) -> None:
        """`pid`: a process of the job, in whose control groups it runs."""
        self._pid = pid
        self._survey = topology.survey()
        self._since = time.monotonic()
        self._processes = processes()
        self._stolen, self._busy = stolen(), busy()
        self._throttled = kernel_files.throttled(pid)
        self._reclaims = kernel_files.reclaims(pid)
        self._limits = kernel_files.limits(pid=pid)

    def _used(self, pid: int, now: Stat, *, children: bool = False) -> float:
        """Return the CPU seconds of a process since the watch began; `children`: including its
        children that have ended."""

        def seconds(one: Stat) -> float:
            return one.user + one.kernel + (one.children_cpu if children else 0.0)

        first = self._processes.get(pid)
        began = seconds(first) if first and first.started == now.started else 0.0
        return seconds(now) - began

    def figures(self, job: Collection[int], own: Collection[int], allowed: Collection[int]) -> Host:
        """Return the host's figures. `job`: processes of the job; `own`: those that watch it;
        `allowed`: CPUs that the job can run on."""
        seconds = max(time.monotonic() - self._since, TICK)
        there = processes()
        used = {
            pid: self._used(pid, now)
            for pid, now in there.items()
            if pid not in job and pid not in own and now.parent != KERNEL
        }
        cores = {pid: max(0.0, cpu) / seconds for pid, cpu in used.items()}
        busiest = sorted(cores, key=lambda pid: -cores[pid])[:MOST_NAMED]
        could = self._survey.mask | (self._survey.cpuset or frozenset()) - _isolated()
        # processes on the job's CPUs that are neither the job's nor dltune's
        now = busy()
        on_its = sum(
            now[cpu] - self._busy.get(cpu, now[cpu]) for cpu in now.keys() & (allowed or now)
        )
        mine = {*job, *own} & there.keys()
        its = sum(self._used(pid, there[pid], children=True) for pid in mine)
        others = max(0.0, on_its - its) / seconds
        if _sees_all():
            others = min(others, sum(cores.values()))
        throttled = None
        now_throttled = kernel_files.throttled(self._pid)
        if self._throttled is not None and now_throttled is not None:
            # relative to the job's time on its CPUs: idle CPUs are not throttled
            stood = max(0.0, now_throttled - self._throttled)
            ran = sum(self._used(pid, now) for pid, now in there.items() if pid in job)
            throttled = stood / (stood + ran) if stood else 0.0
        return Host(
            cpus=tuple(sorted(could)),
            online=os.cpu_count() or len(could),
            quota=self._limits.quota,
            throttled=throttled,
            others=others,
            neighbours=tuple(
                Neighbour(pid, process.command(pid) or "kernel thread", cores[pid])
                for pid in busiest
                if cores[pid] >= NAMED
            ),
            stolen=max(0.0, stolen() - self._stolen) / seconds,
            memory_limit=self._limits.memory,
            reclaims=max(0, kernel_files.reclaims(self._pid) - self._reclaims) / seconds,
            available=_available(),
            hyperthreads=tuple(
                sorted(
                    tuple(sorted(core & could))
                    for core in self._survey.host_cores
                    if len(core & could) > 1
                )
            ),
        )


def _isolated() -> frozenset[int]:
    """Return the CPUs that the kernel gives only to processes that ask for them (isolcpus)."""
    return kernel_files.read_cpulist(Path("/sys/devices/system/cpu/isolated"))


def _sees_all() -> bool:
    """Return True if all processes of the machine are visible: not in a container, and not if other
    users' processes are hidden (proc's hidepid)."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _FIRST_PIDS and bool(
            text(Path("/proc/1/stat"))
        )
    except OSError:
        return False


def _available() -> int:
    for line in text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


# Time lost waiting

_TOTAL = re.compile(r"^(some|full) .*total=(\d+)", re.M)
Resource = Literal["io", "memory", "cpu"]
RESOURCES: tuple[Resource, ...] = ("io", "memory", "cpu")


class PressureWatch:
    """The kernel's account of time lost waiting (PSI), of the machine and of the job's cgroup:
    totals now, against those when this was made."""

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        """`pid`: whose cgroup is meant; `root`: where `proc` and `sys` are found."""
        self._places: list[tuple[Resource, str, Path]] = []
        group = _cgroup(pid, root)
        for resource in RESOURCES:
            self._places.append((resource, "machine", root / "proc/pressure" / resource))
            if group is not None:
                self._places.append((resource, "job", group / f"{resource}.pressure"))
        self._since = time.monotonic()
        self._first = {(r, of): _totals(path) for r, of, path in self._places}

    def shares(self) -> tuple[Pressure, ...]:
        """Since then; nothing on a kernel without PSI."""
        seconds = time.monotonic() - self._since
        found = []
        for resource, of, path in self._places:
            first, now = self._first[resource, of], _totals(path)
            if seconds <= 0 or "some" not in first or "some" not in now:
                continue
            share = {
                kind: min(1.0, max(0.0, (now[kind] - first[kind]) / 1e6 / seconds))
                for kind in now.keys() & first
            }
            found.append(Pressure(resource, of, share["some"], share.get("full")))
        return tuple(found)


def _totals(path: Path) -> dict[str, int]:
    """Microseconds."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    return {match[1]: int(match[2]) for match in _TOTAL.finditer(text)}


def _cgroup(pid: int, root: Path) -> Path | None:
    """The folder of the process's cgroup in version 2's tree, unless that is the whole machine."""
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    name = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    folders = (root / "sys/fs/cgroup" / name, root / "sys/fs/cgroup/unified" / name)
    return next((f for f in folders if name and (f / "io.pressure").exists()), None)
