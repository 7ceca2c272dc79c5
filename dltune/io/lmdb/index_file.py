"""The file an index is kept in: a JSON header, then the arrays as they lie in memory.

    dltune.lmdb-index/1\\n
    length and CRC of the header, 8 bytes little-endian each
    the header (Header as JSON), then zeros up to a multiple of 64
    the arrays, each at a multiple of 64

Arrays are mapped, so that the processes of a node share them; each is checked against its CRC when
its database is opened. The file is written beside its target and moved.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dltune.documents.files import claim
from dltune.errors import UsageError
from dltune.io.lmdb.datafile import Identity, open_plain

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

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


class Writer:
    """Collects databases, then writes them all."""

    def __init__(self) -> None:
        self._databases: list[Database] = []
        self._parts: list[bytes | memoryview] = []
        self._length = 0

    def add(
        self,
        name: bytes | None,
        flags: int,
        key_size: int | None,
        arrays: Mapping[str, Array],
    ) -> None:
        sections = {}
        for label, array in arrays.items():
            data = array.data.cast("B") if array.size else memoryview(b"")
            sections[label] = Section(array.dtype.str, array.size, self._length, zlib.crc32(data))
            padding = -data.nbytes % _ALIGN
            self._parts += [data, bytes(padding)]
            self._length += data.nbytes + padding
        shown = None if name is None else name.hex()
        self._databases.append(Database(shown, flags, key_size, sections))

    def write(self, path: Path, identity: Identity) -> None:
        """Raises UsageError when `path` cannot be written, or is being written by another."""
        header = msgspec.json.encode(Header(identity, self._databases))
        start = SCHEMA + _FRAME.pack(len(header), zlib.crc32(header)) + header
        with claim(path, overwrite=True) as output:
            output.write_bytes(b"".join((start, bytes(-len(start) % _ALIGN), *self._parts)))


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
            if file.read(len(SCHEMA)) != SCHEMA:
                return
            if len(frame := file.read(_FRAME.size)) < _FRAME.size:
                return
            length, crc = _FRAME.unpack(frame)
            if length > min(_LARGEST_HEADER, os.fstat(descriptor).st_size):
                return
            data = file.read(length)
        if zlib.crc32(data) != crc:
            return
        self._start = -(-(len(SCHEMA) + _FRAME.size + length) // _ALIGN) * _ALIGN
        try:
            self.header = msgspec.json.decode(data, type=Header)
        except msgspec.DecodeError:
            return

    def arrays(self, database: Database) -> dict[str, Array] | None:
        """The database's arrays, read-only; None when the file does not hold them intact."""
        import numpy as np

        found: dict[str, Array] = {}
        for label, section in database.arrays.items():
            if not section.count:
                found[label] = np.empty(0, section.kind)
                continue
            try:
                array: Array = np.memmap(
                    self._path, section.kind, "r", self._start + section.start, section.count
                )
            except (OSError, ValueError, TypeError):
                return None
            if zlib.crc32(array.data.cast("B")) != section.crc:
                return None
            found[label] = array
        return found
