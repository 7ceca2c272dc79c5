"""Files of /proc and /sys: small files, mounts, CPU lists, cpuinfo and control groups."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

# bytes: more than any file of fixed form holds; what lists things may be longer, and is not read so
MOST = 1 << 14


def read(path: str) -> bytes | None:
    """Return a small file of /proc or /sys, read at once, so that its content is of one moment.
    None when it is gone or access is denied."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, MOST)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def text(path: Path) -> str:
    """Return a file of any length, without blanks around it; empty when it is gone or access is
    denied."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


# The file systems that a process sees: /proc/PID/mountinfo

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """`device`: "major:minor". `root`: the folder within the file system that is shown at `point`.
    `options` are of the file system (its super block), not of the mount."""

    device: str
    root: str
    point: str
    kind: str
    source: str
    options: frozenset[str]


def mounts(table: Path) -> list[Mount]:
    """In the order in which they were made; none where `table`, a mountinfo, cannot be read."""
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        own, _, shared = line.partition(" - ")
        # a source may be empty
        fields, tail = own.split(" "), shared.split(" ", 2)
        if len(fields) >= 5 and len(tail) == 3:
            kind, source, options = tail
            root, point = map(_plain, fields[3:5])
            found.append(
                Mount(fields[2], root, point, kind, _plain(source), frozenset(options.split(",")))
            )
    return found


def _plain(text: str) -> str:
    """Spaces and the like are written in octal."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


# The kernel's list notation for CPU numbers: "0-3,8,10-11"


def parse_cpulist(listed: str) -> frozenset[int]:
    """CPU numbers of a list; the empty list is "" (some files hold only a newline).

    Raises ValueError when the text is not such a list.
    """
    cpus: set[int] = set()
    for part in filter(None, listed.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def read_cpulist(path: Path) -> frozenset[int]:
    """CPU numbers of a file of the kernel's; none where there is no such list."""
    try:
        return parse_cpulist(text(path))
    except ValueError:
        return frozenset()


def format_cpulist(cpus: Iterable[int]) -> str:
    """The shortest list for these CPUs; `parse_cpulist` reads it back."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


# The model and features of the CPU, under the kernel's names


def cpuinfo_value(root: Path = Path("/")) -> dict[str, str]:
    """Return the first CPU's entries in /proc/cpuinfo; empty if there are none."""
    cpu, _, _ = text(root / "proc/cpuinfo").partition("\n\n")
    pairs = (line.partition(":") for line in cpu.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@functools.lru_cache
def cpu_flags() -> frozenset[str]:
    """Return the first CPU's features; empty if the kernel does not report them."""
    cpu = cpuinfo_value()
    return frozenset((cpu.get("flags") or cpu.get("Features", "")).split())


# The limits of a process's control groups, version 1 and 2: CPUs, CPU time, memory.
# A limit holds for everything below it, so each hierarchy is walked from the process's own group up
# to the mount. In a container the mount's root is often not the hierarchy's (and the process's
# group path then begins with it), which only /proc/self/mountinfo shows.

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
            if found := read_cpulist(group / name):
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
