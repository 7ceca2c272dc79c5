"""The file an index is kept in: a JSON header, then the arrays as they are in memory.

    dltune.lmdb-index/1\\n
    length and CRC of the header, 8 bytes little-endian each
    the header (Header as JSON), then zeros up to a multiple of 64
    the arrays, each at a multiple of 64

Arrays are mapped, so that the processes of a node share them; each is checked against its CRC when
its database is opened. The file is written next to its target and moved.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dltune.base.documents import claim
from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.datafile import Identity, open_plain

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from dltune.systems.lmdb.format.scan import Entries

    Array = NDArray[Any]

SCHEMA = b"dltune.lmdb-index/1\n"
SUFFIX = ".dltune-index"
_ALIGN = 64
_FRAME = struct.Struct("<QQ")
_LARGEST_HEADER = 1 << 28


class Section(msgspec.Struct, frozen=True):
    """An array of `count` numbers of `kind` (numpy's code), `start` bytes after the header."""

    kind: str
    count: int
    start: int
    crc: int


class Database(msgspec.Struct, frozen=True):
    """`name` in hex, null for the main one; `key_size` in bytes, null when keys differ in size."""

    name: str | None
    flags: int
    key_size: int | None
    arrays: dict[str, Section]


class Header(msgspec.Struct, frozen=True):
    identity: Identity
    databases: list[Database]


def beside(data: Path) -> Path:
    """Where the index of the data file `data` is kept."""
    return data.with_name(data.name + SUFFIX)


def write(path: Path, identity: Identity, databases: Iterable[Entries]) -> None:
    """Raises UsageError when `path` cannot be written, or is being written by another."""
    described = []
    parts: list[bytes | memoryview] = []
    length = 0
    for database in databases:
        sections = {}
        for label, array in database.arrays.items():
            data = array.data.cast("B") if array.size else memoryview(b"")
            sections[label] = Section(array.dtype.str, array.size, length, zlib.crc32(data))
            padding = -data.nbytes % _ALIGN
            parts += [data, bytes(padding)]
            length += data.nbytes + padding
        name = None if database.name is None else database.name.hex()
        described.append(Database(name, database.flags, database.key_size, sections))
    header = msgspec.json.encode(Header(identity, described))
    start = SCHEMA + _FRAME.pack(len(header), zlib.crc32(header)) + header
    with claim(path, overwrite=True) as output:
        output.write_bytes(b"".join((start, bytes(-len(start) % _ALIGN), *parts)))


class Reader:
    """An index file, opened. `header` is None when it is missing, damaged or of another kind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.header: Header | None = None
        try:
            descriptor = open_plain(path)
        except UsageError:
            return
        with open(descriptor, "rb") as file:
            front = file.read(len(SCHEMA) + _FRAME.size)
            if not front.startswith(SCHEMA) or len(front) < len(SCHEMA) + _FRAME.size:
                return
            length, crc = _FRAME.unpack_from(front, len(SCHEMA))
            if length > min(_LARGEST_HEADER, os.fstat(descriptor).st_size):
                return
            data = file.read(length)
        if zlib.crc32(data) != crc:
            return
        self._start = -(-(len(front) + length) // _ALIGN) * _ALIGN
        try:
            self.header = msgspec.json.decode(data, type=Header)
        except msgspec.DecodeError:
            return

    def arrays(self, database: Database) -> dict[str, Array] | None:
        """The database's arrays, read-only; None when the file does not hold them intact."""
        import numpy as np

        arrays: dict[str, Array] = {}
        for label, section in database.arrays.items():
            if not section.count:
                arrays[label] = np.empty(0, section.kind)
                continue
            try:
                array: Array = np.memmap(
                    self._path, section.kind, "r", self._start + section.start, section.count
                )
            except (OSError, ValueError, TypeError):
                return None
            if zlib.crc32(array.data.cast("B")) != section.crc:
                return None
            arrays[label] = array
        return arrays
