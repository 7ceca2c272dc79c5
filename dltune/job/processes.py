"""The processes of a job, and what the kernel counts of them and of their threads."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dltune.errors import UsageError

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_RSS_FILE = re.compile(rb"^RssFile:\s+(\d+) kB", re.M)
_SWITCHES = re.compile(rb"^(non)?voluntary_ctxt_switches:\s+(\d+)", re.M)


@dataclass(frozen=True)
class Stat:
    """From /proc/PID/stat or /proc/PID/task/TID/stat. Times are in seconds; `started` in ticks
    since boot, which with the number names a process for good."""

    name: str
    state: str
    parent: int
    minor: int
    major: int
    user: float
    kernel: float
    started: int


@dataclass(frozen=True)
class Counts:
    """What a thread has had since it began. `cpu` and `queued` (ready, waiting for a CPU) in
    seconds, None where the kernel keeps no scheduler statistics."""

    stat: Stat
    cpu: float | None
    queued: float | None
    voluntary: int
    involuntary: int


@dataclass(frozen=True)
class Reads:
    """From /proc/PID/io: calls that read, the bytes they copied, bytes that came from storage."""

    calls: int
    copied: int
    storage: int


def read(path: str) -> bytes | None:
    """A small file of /proc at once; None when it is gone or denied."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 1 << 14)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def parse_stat(data: bytes) -> Stat:
    """The name may hold anything, parentheses and spaces too: the last one closes it."""
    head, _, tail = data.rpartition(b")")
    fields = tail.split()
    return Stat(
        name=head.partition(b"(")[2].decode(errors="replace"),
        state=chr(fields[0][0]),
        parent=int(fields[1]),
        minor=int(fields[7]),
        major=int(fields[9]),
        user=int(fields[11]) * TICK,
        kernel=int(fields[12]) * TICK,
        started=int(fields[19]),
    )


def process_stat(pid: int) -> Stat | None:
    data = read(f"/proc/{pid}/stat")
    return parse_stat(data) if data else None


def threads(pid: int) -> list[int]:
    """The threads of a process; none when it has ended."""
    try:
        with os.scandir(f"/proc/{pid}/task") as entries:
            return [int(entry.name) for entry in entries]
    except OSError:
        return []


def counts(pid: int, tid: int) -> Counts | None:
    """A thread's counts; None when it has ended."""
    folder = f"/proc/{pid}/task/{tid}"
    stat, status = read(f"{folder}/stat"), read(f"{folder}/status")
    if not stat or not status:
        return None
    switches = {bool(match[1]): int(match[2]) for match in _SWITCHES.finditer(status)}
    scheduled = (read(f"{folder}/schedstat") or b"").split()
    return Counts(
        stat=parse_stat(stat),
        cpu=int(scheduled[0]) / 1e9 if scheduled else None,
        queued=int(scheduled[1]) / 1e9 if scheduled else None,
        voluntary=switches.get(False, 0),
        involuntary=switches.get(True, 0),
    )


def reads(pid: int) -> Reads | None:
    """What a process has read; None when it has ended or may not be looked into."""
    data = read(f"/proc/{pid}/io")
    if not data:
        return None
    fields = dict(line.split(b": ", 1) for line in data.splitlines())
    return Reads(int(fields[b"syscr"]), int(fields[b"rchar"]), int(fields[b"read_bytes"]))


def rss_file(pid: int) -> int | None:
    """Bytes of mapped files in a process's page table, as the kernel keeps count; None when the
    process has ended."""
    match = _RSS_FILE.search(read(f"/proc/{pid}/status") or b"")
    return int(match[1]) * 1024 if match else None


def command(pid: int) -> str:
    """The command line; a thread of the kernel, or a process that has ended, has none."""
    data = read(f"/proc/{pid}/cmdline") or b""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def owner(pid: int) -> str:
    """The name (else the number) of the user a process runs as."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "?"
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def may_look_into(pid: int) -> bool:
    """Whether the kernel lets this process see another's mappings, descriptors and calls."""
    try:
        with os.scandir(f"/proc/{pid}/fd"), open(f"/proc/{pid}/maps") as file:
            file.read(1)
    except OSError:
        return False
    return True


class Tree:
    """A process and all that descend from it. Who once belonged to it belongs to it still when its
    parent has ended and it was given another."""

    def __init__(self, root: int) -> None:
        """Raises UsageError when there is no such process."""
        stat = process_stat(root)
        if stat is None:
            raise UsageError(
                f"there is no process {root}", remedy="name one that runs: ps -e, or pgrep -f NAME"
            )
        self.root = root
        self._started = {root: stat.started}
        self.refresh()

    def refresh(self) -> list[int]:
        """The processes that run now, the root first; a zombie counts as ended."""
        stats = {pid: stat for pid, stat in _all() if stat.state not in "ZX"}
        members = {pid for pid, at in self._started.items() if _same(stats, pid, at)}
        children: dict[int, list[int]] = {}
        for pid, stat in stats.items():
            children.setdefault(stat.parent, []).append(pid)
        waiting = list(members)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child not in members:
                    members.add(child)
                    self._started[child] = stats[child].started
                    waiting.append(child)
        return sorted(members, key=lambda pid: (pid != self.root, pid))

    def started(self, pid: int) -> int:
        """When a member began, in ticks since boot."""
        return self._started[pid]


def _same(stats: dict[int, Stat], pid: int, started: int) -> bool:
    return pid in stats and stats[pid].started == started


def _all() -> Iterator[tuple[int, Stat]]:
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in numbers:
        if stat := process_stat(pid):
            yield pid, stat
