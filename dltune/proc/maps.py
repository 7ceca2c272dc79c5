"""The files that a process has mapped: /proc/PID/maps."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import NamedTuple

HEADER = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) +(/.*)$", re.M)


class Mapping(NamedTuple):
    """Addresses `start` to `end` show the file from byte `offset` on.

    `path` is of the process's own root, without " (deleted)". `device` and `inode` are as stat(2)
    tells them, but for file systems that make up devices of their own (btrfs, overlayfs).
    """

    start: int
    end: int
    offset: int
    executable: bool
    device: int
    inode: int
    path: str


def mappings(pid: int) -> list[Mapping]:
    """In the order of their addresses. Raises OSError when the process has ended or may not be
    seen."""
    return parse(Path(f"/proc/{pid}/maps").read_bytes())


def parse(data: bytes) -> list[Mapping]:
    """The lines that show files."""
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
        for start, end, access, offset, device, inode, path in HEADER.findall(data)
    ]


# a file has several mappings, and a process's files lie on few devices


@functools.lru_cache(maxsize=64)
def _device(told: bytes) -> int:
    major, minor = told.split(b":")
    return os.makedev(int(major, 16), int(minor, 16))


@functools.lru_cache(maxsize=4096)
def _name(path: bytes) -> str:
    return os.fsdecode(path).removesuffix(" (deleted)")
