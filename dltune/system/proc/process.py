"""The identity of a process, its CPU time, reads and memory, and whether it can be inspected."""

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
    """Counts of a process or a thread: read calls, the bytes they copied, and the bytes that came
    from storage."""

    calls: int
    copied: int
    storage: int

    def since(self, first: Reads) -> Reads:
        """The growth of every count."""
        return Reads(*(max(0, now - then) for now, then in zip(self, first, strict=True)))


def exists(pid: int) -> bool:
    """Return True if there is such a process; a zombie counts."""
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
    """Return the environment that the process was started with. Raises OSError when access to it
    is denied."""
    data = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(pair.partition("=")[::2] for pair in data.split("\0") if "=" in pair)


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process, including threads that have ended; None when the process
    has ended."""
    try:
        # the clock that clock_getcpuclockid(3) gives for it
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def reads(pid: int, tid: int | None = None) -> Reads | None:
    """Return the reads of a process, or of one of its threads; None when it has ended or cannot be
    inspected."""
    data = read(f"/proc/{pid}/io" if tid is None else f"/proc/{pid}/task/{tid}/io")
    if not data:
        return None
    fields = dict(line.split(b": ", 1) for line in data.splitlines())
    return Reads(int(fields[b"syscr"]), int(fields[b"rchar"]), int(fields[b"read_bytes"]))


def address_space(pid: int) -> int:
    """Return the size of the address space in bytes; 0 when the process has ended."""
    return _pages(pid)[0] * mmap.PAGESIZE


def resident(pid: int) -> int:
    """Return the resident memory in bytes; 0 when the process has ended."""
    return _pages(pid)[1] * mmap.PAGESIZE


def anonymous(pid: int) -> int:
    """Return the resident memory without files in bytes; 0 when the process has ended."""
    _, here, files = _pages(pid)
    return (here - files) * mmap.PAGESIZE


def resident_files(pid: int) -> int | None:
    """Bytes of mapped files in its page table, by the kernel's count; None when it has ended."""
    match = _FILES.search(read(f"/proc/{pid}/status") or b"")
    return int(match[1]) * 1024 if match else None


def _pages(pid: int) -> tuple[int, int, int]:
    """Return the pages of the address space, the resident pages, and the resident pages of files;
    0 when the process has ended."""
    size, here, files, *_ = (read(f"/proc/{pid}/statm") or b"0 0 0").split()
    return int(size), int(here), int(files)


def may_look_into(pid: int) -> bool:
    """Return True if the kernel lets this process see another's mappings, descriptors and calls."""
    try:
        with os.scandir(f"/proc/{pid}/fd"), open(f"/proc/{pid}/maps") as file:
            file.read(1)
    except OSError:
        return False
    return True
