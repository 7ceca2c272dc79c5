"""The limits of a process's control groups, version 1 and 2: CPUs, CPU time, memory.

A limit holds for everything below it, so each hierarchy is walked from the process's own group up
to the mount. In a container the mount's root is often not the hierarchy's (and the process's group
path then begins with it), which only `/proc/self/mountinfo` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dltune.system import cpulist
from dltune.system.proc.entry import text
from dltune.system.proc.mounts import mounts

_NO_LIMIT = 2**60  # bytes; version 1 writes a larger number for none
# by name in cpu.stat, of version 1 and 2, its unit in seconds
_THROTTLED = {"throttled_time": 1e-9, "throttled_usec": 1e-6}


@dataclass(frozen=True)
class Limits:
    """`cpus`: the cpuset (None: no cpuset seen). `quota`: CPU time in CPUs, `memory`: bytes (None:
    no limit)."""

    cpus: frozenset[int] | None
    quota: float | None
    memory: int | None


def limits(root: Path = Path("/"), pid: int | None = None) -> Limits:
    """Return the tightest of each limit from a process's groups upwards (None: this process)."""
    cpusets: list[frozenset[int]] = []
    for group in _groups(root, "cpuset", pid):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if found := cpulist.read(group / name):
                cpusets.append(found)
                break
    quotas = [quota for group in _groups(root, "cpu", pid) if (quota := _quota(group)) is not None]
    memories = [
        limit
        for group in _groups(root, "memory", pid)
        if (limit := _memory_limit(group)) is not None
    ]
    return Limits(
        cpus=frozenset.intersection(*cpusets) if cpusets else None,
        quota=min(quotas, default=None),
        memory=min(memories, default=None),
    )


def oom_kills(root: Path = Path("/")) -> int:
    """Return the number of processes of this process's group that the kernel has ended because
    memory ran out; 0 if it does not count them."""
    for group in _groups(root, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            if (count := _counts(group / name).get("oom_kill")) is not None:
                return count
    return 0


def throttled(pid: int, root: Path = Path("/")) -> float | None:
    """Return the seconds for which a process's groups were throttled by their quotas so far, summed
    over CPUs; None if none of them has a quota."""
    stood = [
        count * _THROTTLED[name]
        for group in _groups(root, "cpu", pid)
        if _quota(group) is not None
        for name, count in _counts(group / "cpu.stat").items()
        if name in _THROTTLED
    ]
    return sum(stood) if stood else None


def reclaims(pid: int, root: Path = Path("/")) -> int:
    """Return the number of times that a process's group with a limit needed more memory, and its
    pages were reclaimed; 0 if that is not counted. The group with the limit counts it, which can be
    above the process's own group."""
    most = 0
    for group in _groups(root, "memory", pid):
        if _memory_limit(group) is None:
            continue
        if count := text(group / "memory.failcnt"):
            most = max(most, int(count))
        most = max(most, _counts(group / "memory.events").get("max", 0))
    return most


def _counts(file: Path) -> dict[str, int]:
    """Return the counts of a file with a name and a number in each line."""
    lines = (line.partition(" ") for line in text(file).splitlines())
    return {name: int(count) for name, _, count in lines if count.isdigit()}


def _groups(root: Path, controller: str, pid: int | None = None) -> Iterator[Path]:
    """Folders of a process's group and all above it in every hierarchy with the controller."""
    mounted = mounts(root / "proc/self/mountinfo")
    # by "\n" alone: a group's name can contain other line separators
    for line in text(root / "proc" / str(pid or "self") / "cgroup").split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = number == "0" and not controllers
        if not unified and controller not in controllers.split(","):
            continue
        kind = "cgroup2" if unified else "cgroup"
        for mount in mounted:
            if mount.kind == kind and (unified or controller in mount.options):
                yield from _upwards(root / mount.point.lstrip("/"), mount.root, path)
                break


def _upwards(point: Path, mount_root: str, path: str) -> Iterator[Path]:
    group = PurePosixPath(path)
    below = group.relative_to(mount_root).parts if group.is_relative_to(mount_root) else ()
    if ".." in below:  # as without any: the group lies outside what is mounted here
        below = ()
    for depth in range(len(below), -1, -1):
        yield point.joinpath(*below[:depth])


def _memory_limit(group: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (limit := text(group / name)).isdigit() and int(limit) < _NO_LIMIT:
            return int(limit)
    return None


def _quota(group: Path) -> float | None:
    if limit := text(group / "cpu.max"):
        quota, _, period = limit.partition(" ")
    else:
        quota, period = text(group / "cpu.cfs_quota_us"), text(group / "cpu.cfs_period_us")
    # "max" and -1 are no limit
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None
