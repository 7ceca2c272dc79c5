"""The data files of a process: its mapped files, its open files, and their formats."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dltune.schemas.io import FileFormat, Storage
from dltune.system.proc import process
from dltune.system.proc.process import Resident
from dltune.watch.files.storage import Cached, cached, storage

# Formats of files

HEAD = 512  # bytes from the front that identify the format

_LMDB = struct.pack("<I", 0xBEEFC0DE)
# what stands at an offset. The meta page's header is 16 bytes in LMDB 0.9, 24 in 1.0
_MAGIC: tuple[tuple[int, bytes, FileFormat], ...] = (
    (16, _LMDB, "lmdb"),
    (24, _LMDB, "lmdb"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"ARROW1", "arrow"),
    (0, b"FEA1", "arrow"),
    (0, b"PAR1", "parquet"),
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (257, b"ustar", "tar"),
)
_CRC_POLYNOMIAL, _CRC_DELTA = 0x82F63B78, 0xA282EAD8


def recognise(head: bytes, name: str, size: int) -> FileFormat | None:
    """Return the format of a file whose first `HEAD` bytes are `head`.

    The first bytes decide, because names are wrong more often. "other" for possible data of no
    format known here; None for files without data: programs, libraries, compiled Python, archives
    of code.
    """
    if head.startswith((b"\x7fELF", b"#!")) or name.endswith((".pyc", ".so", ".py", ".jar")):
        return None
    for offset, magic, kind in _MAGIC:
        if head.startswith(magic, offset):
            return kind
    if head.startswith(b"PK\x03\x04"):
        return "npz" if name.endswith(".npz") else None
    if _is_safetensors(head, size):
        return "safetensors"
    if _is_tfrecord(head, size):
        return "tfrecord"
    return "other"


def _is_safetensors(head: bytes, size: int) -> bool:
    """A length in 8 bytes, then so many bytes of JSON."""
    return (
        len(head) > 9 and 2 <= int.from_bytes(head[:8], "little") <= size - 8 and head[8:9] == b"{"
    )


def _is_tfrecord(head: bytes, size: int) -> bool:
    """A length in 8 bytes, then its masked CRC-32C."""
    if len(head) < 12:
        return False
    crc = crc32c(head[:8])
    masked = ((crc >> 15 | crc << 17) + _CRC_DELTA) & 0xFFFFFFFF
    return (
        int.from_bytes(head[8:12], "little") == masked
        and int.from_bytes(head[:8], "little") + 16 <= size
    )


def crc32c(data: bytes) -> int:
    """The Castagnoli CRC of a few bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Mapped and open files

# bytes; a file of no known format is data from here on
LARGE = 1 << 20
# files of no known format in these places belong to programs
_PROGRAMS = re.compile(
    r"^/(usr|lib|lib64|bin|sbin|etc|proc|sys|dev(?!/shm/))/|/(site|dist)-packages/"
)

# device and inode: the kernel's identity of a file
Key = tuple[int, int]


@dataclass(frozen=True)
class Mapping:
    """Addresses `start` to `end` show the file from `offset` on."""

    key: Key
    start: int
    end: int
    offset: int


@dataclass(frozen=True)
class Opened:
    """A descriptor: its position, and whether it bypasses the page cache (O_DIRECT)."""

    key: Key
    descriptor: int
    position: int
    direct: bool


@dataclass
class Known:
    """A data file, open here for as long as it is watched: a deleted file can still be inspected.

    `last`: its part in the page cache at the last sample, None if unknown. `came`: bytes that came
    into it from each sample to the next, summed, because dropped bytes can be read again; `beside`:
    the same up to the last sample that also covered the use by processes.
    """

    path: str
    descriptor: int
    format: FileFormat
    size: int
    storage: Storage
    last: Cached | None
    came: int | None = field(init=False)
    beside: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.came = self.beside = None if self.last is None else 0

    def look(self) -> None:
        before, self.last = self.last, cached(self.descriptor)
        if self.came is None or before is None or self.last is None:
            self.came = None
        else:
            self.came += max(0, self.last.seen - before.seen)
        self.size = os.fstat(self.descriptor).st_size


class DataFiles:
    """The data files of a job, found in the surveys of its processes."""

    def __init__(self) -> None:
        self.known: dict[Key, Known] = {}
        self._others: set[Key] = set()
        self._mapped: dict[tuple[int, int, str], Key | None] = {}

    def close(self) -> None:
        for known in self.known.values():
            os.close(known.descriptor)

    def mappings(self, pid: int) -> tuple[Mapping, ...]:
        """Return the mappings of data files in a process now. Raises OSError when it has ended, or
        cannot be inspected."""
        areas = process.mappings(pid)
        programs = {area.inode for area in areas if area.executable}
        return tuple(
            Mapping(key, area.start, area.end, area.offset)
            for area in areas
            if area.inode not in programs and (key := self._key(pid, area)) is not None
        )

    def resident(self, pid: int, mappings: Sequence[Mapping]) -> list[tuple[Key, Resident]]:
        """Return the parts of these mappings in the page table. Raises OSError as above."""
        keys = {(mapping.start, mapping.offset): mapping.key for mapping in mappings}
        return [
            (keys[place.start, place.offset], place)
            for place in process.resident_mappings(pid)
            if (place.start, place.offset) in keys
        ]

    def opened(self, pid: int) -> Iterator[Opened]:
        """Yield the descriptors of data files. Raises OSError as above."""
        for number, target, status in process.plain_files(pid):
            key = status.st_dev, status.st_ino
            if key in self._others:
                continue
            if key not in self.known:
                path = process.target(pid, number)
                if path is None or self._examined(pid, target, path, status) is None:
                    continue
            if position := process.position(pid, number):
                yield Opened(key, number, position.at, bool(position.flags & os.O_DIRECT))

    def _key(self, pid: int, area: process.Mapping) -> Key | None:
        """Return the key of a mapped file, if it is data. Its path is relative to the root of the
        process; the file can have been deleted or replaced by another."""
        file = area.device, area.inode, area.path
        if file not in self._mapped:
            self._mapped[file] = self._found(pid, area)
        return self._mapped[file]

    def _found(self, pid: int, area: process.Mapping) -> Key | None:
        place = f"/proc/{pid}/root{area.path}"
        with contextlib.suppress(OSError):
            status = os.stat(place)  # noqa: PTH116 - the link of a process is no path to resolve
            if status.st_ino == area.inode:
                return self._examined(pid, place, area.path, status)
        for _, target, status in process.plain_files(pid):
            if status.st_ino == area.inode:
                return self._examined(pid, target, area.path, status)
        return None

    def _examined(self, pid: int, place: str, path: str, status: os.stat_result) -> Key | None:
        """Return the key of the file at `place` (`path` in the process), if it is data."""
        key = status.st_dev, status.st_ino
        if key in self.known:
            return key
        if key in self._others or not stat.S_ISREG(status.st_mode):
            return None
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        path = path.removesuffix(" (deleted)")
        known = recognise(os.pread(descriptor, HEAD, 0), path, status.st_size)
        if known is None or (
            known == "other" and (status.st_size < LARGE or _PROGRAMS.search(path))
        ):
            os.close(descriptor)
            self._others.add(key)
            return None
        self.known[key] = Known(
            path=path,
            descriptor=descriptor,
            format=known,
            size=status.st_size,
            storage=storage(Path(f"/proc/self/fd/{descriptor}"), shown=Path(path), pid=pid),
            last=cached(descriptor),
        )
        return key
