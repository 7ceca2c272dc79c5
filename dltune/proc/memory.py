"""How much memory a process has, in bytes."""

from __future__ import annotations

import mmap
import re

from dltune.proc.entry import read

_FILES = re.compile(rb"^RssFile:\s+(\d+) kB", re.M)


def size(pid: int) -> int:
    """Of its address space; 0 when it has ended."""
    return _pages(pid, 0) * mmap.PAGESIZE


def resident(pid: int) -> int:
    """What of it is in memory; 0 when it has ended."""
    return _pages(pid, 1) * mmap.PAGESIZE


def resident_files(pid: int) -> int | None:
    """Mapped files in its page table, as the kernel keeps count; None when it has ended."""
    match = _FILES.search(read(f"/proc/{pid}/status") or b"")
    return int(match[1]) * 1024 if match else None


def _pages(pid: int, field: int) -> int:
    told = (read(f"/proc/{pid}/statm") or b"").split()
    return int(told[field]) if told else 0
