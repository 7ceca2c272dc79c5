"""Who a process is, what it has used and read, how much memory it has, and whether it may be looked
into."""

from __future__ import annotations

import contextlib
import mmap
import os
import pwd
import re
import time
from pathlib import Path
from typing import NamedTuple

from dltune.system.proc.entry import read

_FILES = re.compile(rb"^RssFile:\s+(\d+) kB", re.M)


class Reads(NamedTuple):
    """Of a process or a thread: calls that read, the bytes they copied, bytes that came from
    storage."""

    calls: int
    copied: int
    storage: int

    def since(self, first: Reads) -> Reads:
        """The growth of every count."""
        return Reads(*(max(0, now - then) for now, then in zip(self, first, strict=True)))


def exists(pid: int) -> bool:
    """Whether there is such a process; a zombie is one."""
    return Path(f"/proc/{pid}").exists()


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


def environment(pid: int) -> dict[str, str]:
    """What the process was started with. Raises OSError when it may not be seen."""
    data = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(pair.partition("=")[::2] for pair in data.split("\0") if "=" in pair)


def cpu_seconds(pid: int) -> float | None:
    """Of a process, with its threads that have ended; None when it has ended itself."""
    try:
        # the clock that clock_getcpuclockid(3) gives for it
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def reads(pid: int, tid: int | None = None) -> Reads | None:
    """What a process has read, or one of its threads; None when it has ended or may not be looked
    into."""
    data = read(f"/proc/{pid}/io" if tid is None else f"/proc/{pid}/task/{tid}/io")
    if not data:
        return None
    fields = dict(line.split(b": ", 1) for line in data.splitlines())
    return Reads(int(fields[b"syscr"]), int(fields[b"rchar"]), int(fields[b"read_bytes"]))


def address_space(pid: int) -> int:
    """Its size in bytes; 0 when it has ended."""
    return _pages(pid)[0] * mmap.PAGESIZE


def resident(pid: int) -> int:
    """Bytes of it that are in memory; 0 when it has ended."""
    return _pages(pid)[1] * mmap.PAGESIZE


def anonymous(pid: int) -> int:
    """Bytes of it in memory that are no file's; 0 when it has ended."""
    _, here, files = _pages(pid)
    return (here - files) * mmap.PAGESIZE


def resident_files(pid: int) -> int | None:
    """Bytes of mapped files in its page table, by the kernel's count; None when it has ended."""
    match = _FILES.search(read(f"/proc/{pid}/status") or b"")
    return int(match[1]) * 1024 if match else None


def _pages(pid: int) -> tuple[int, int, int]:
    """Of the address space, of those in memory, and of these of files; 0 when it has ended."""
    size, here, files, *_ = (read(f"/proc/{pid}/statm") or b"0 0 0").split()
    return int(size), int(here), int(files)


def may_look_into(pid: int) -> bool:
    """Whether the kernel lets this process see another's mappings, descriptors and calls."""
    try:
        with os.scandir(f"/proc/{pid}/fd"), open(f"/proc/{pid}/maps") as file:
            file.read(1)
    except OSError:
        return False
    return True
