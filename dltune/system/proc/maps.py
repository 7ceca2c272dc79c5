"""The files that a process has mapped, and their parts in its page table: /proc/PID/maps and
/proc/PID/smaps."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) +(/.*)$", re.M)


class Mapping(NamedTuple):
    """Addresses `start` to `end` show the file from byte `offset` on.

    `path` is of the process's own root, without " (deleted)". `device` and `inode` are as stat(2)
    reports them, except for file systems that make up device numbers (btrfs, overlayfs).
    """

    start: int
    end: int
    offset: int
    executable: bool
    device: int
    inode: int
    path: str


class Resident(NamedTuple):
    """The mapping at address `start`, which shows its file from `offset` on: its resident bytes,
    and the advice passed to madvise: "random", "sequential" or "normal"."""

    start: int
    offset: int
    bytes: int
    advice: str


def mappings(pid: int) -> list[Mapping]:
    """Return the mappings in the order of their addresses. Raises OSError when the process has
    ended or access is denied."""
    return parse(Path(f"/proc/{pid}/maps").read_bytes())


def parse(data: bytes) -> list[Mapping]:
    """Parse the lines that show files."""
    return [
        Mapping(
            int(start, 16),
            int(end, 16),
            int(offset, 16),
            b"x" in access,
            _device(device),
            int(inode),
            _name(path),
        )
        for start, end, access, offset, device, inode, path in _HEADER.findall(data)
    ]


def resident(pid: int) -> list[Resident]:
    """Return the resident part of every mapped file. The kernel walks the page table for it, which
    takes a tenth of a second for ten GiB. Raises OSError when the process has ended or access is
    denied."""
    return list(_parse_resident(Path(f"/proc/{pid}/smaps").read_bytes()))


def _parse_resident(data: bytes) -> Iterator[Resident]:
    header = None
    there = 0
    for line in data.split(b"\n"):
        if line[:1] in b"0123456789abcdef":
            header = _HEADER.match(line)
        elif header is None:
            continue
        elif line.startswith(b"Rss:"):
            there = int(line.split()[1]) * 1024
        elif line.startswith(b"VmFlags:"):
            flags = line.split()
            advice = "random" if b"rr" in flags else "sequential" if b"sr" in flags else "normal"
            yield Resident(int(header[1], 16), int(header[4], 16), there, advice)


# a file has several mappings, and a process's files are on few devices


@functools.lru_cache(maxsize=64)
def _device(told: bytes) -> int:
    major, minor = told.split(b":")
    return os.makedev(int(major, 16), int(minor, 16))


@functools.lru_cache(maxsize=4096)
def _name(path: bytes) -> str:
    return os.fsdecode(path).removesuffix(" (deleted)")
