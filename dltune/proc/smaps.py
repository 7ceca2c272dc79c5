"""What of its mapped files is in a process's page table: /proc/PID/smaps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dltune.proc.maps import HEADER


class Resident(NamedTuple):
    """Of the mapping at address `start`, which shows its file from `offset` on: bytes that are
    there, and what madvise was told: "random", "sequential" or "normal"."""

    start: int
    offset: int
    bytes: int
    advice: str


def resident(pid: int) -> list[Resident]:
    """Of every mapped file. The kernel walks the page table for it, which takes a tenth of a second
    for ten GiB. Raises OSError when the process has ended or may not be seen."""
    return list(parse(Path(f"/proc/{pid}/smaps").read_bytes()))


def parse(data: bytes) -> Iterator[Resident]:
    header = None
    there = 0
    for line in data.split(b"\n"):
        if line[:1] in b"0123456789abcdef":
            header = HEADER.match(line)
        elif header is None:
            continue
        elif line.startswith(b"Rss:"):
            there = int(line.split()[1]) * 1024
        elif line.startswith(b"VmFlags:"):
            flags = line.split()
            advice = "random" if b"rr" in flags else "sequential" if b"sr" in flags else "normal"
            yield Resident(int(header[1], 16), int(header[4], 16), there, advice)
