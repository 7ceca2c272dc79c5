"""Positions of a database's records, kept next to the data file and made again when stale.

    index = Index.open(Path("train.lmdb"))
    os.pread(descriptor, int(index.sizes[7]), int(index.offsets[7]))     # record 7
    index.key(7), index.find(b"00000007"), index.txn

A record's bytes are in one piece in the data file, on overflow pages too. Reading is right as long
as `holds()` says so *afterwards*: see the package on writers.

An index file has a JSON header, followed by the arrays as they are in memory:

    dltune.lmdb-index/1

    length and CRC of the header, 8 bytes little-endian each
    the header (Header as JSON), then zeros up to a multiple of 64
    the arrays, each at a multiple of 64
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dltune.base.documents import claim
from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.datafile import DataFile, Identity, data_path, open_plain, opened
from dltune.systems.lmdb.format.lmdb_binding import Entries, Tell, scan

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray


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


def write_index(path: Path, identity: Identity, databases: Iterable[Entries]) -> None:
    """Raises UsageError when `path` cannot be written, or is being written by another.

    The file is written next to its target and moved.
    """
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


class IndexReader:
    """An index file, opened. `header` is None when it is missing, damaged or of another kind.

    Arrays are mapped, so that the processes of a node share them. Each array is checked against its
    CRC when its database is opened.
    """

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

    def arrays(self, database: Database) -> dict[str, NDArray[Any]] | None:
        """The database's arrays, read-only; None when the file does not hold them intact."""
        import numpy as np

        arrays: dict[str, NDArray[Any]] = {}
        for label, section in database.arrays.items():
            if not section.count:
                arrays[label] = np.empty(0, section.kind)
                continue
            try:
                array: NDArray[Any] = np.memmap(
                    self._path, section.kind, "r", self._start + section.start, section.count
                )
            except (OSError, ValueError, TypeError):
                return None
            if zlib.crc32(array.data.cast("B")) != section.crc:
                return None
            arrays[label] = array
        return arrays


ATTEMPTS = 3  # to index a file that is being written
REVERSE_KEY, DUPLICATES, INTEGER_KEY = 0x02, 0x04, 0x08

# which of the file's databases, by their names, are wanted
Choose = Callable[[list[bytes | None]], list[int]]


class Index:
    """The records of one database of an LMDB file, in key order; duplicates follow each other.

    path        the data file
    name        of the named database; None: the main one
    offsets     (n,) uint64, bytes from the file's start to each record's value
    sizes       (n,) uint32, bytes of each value
    txn         the transaction the index belongs to
    databases   names of the file's named databases (which are no records of the main one)
    unsaved     why the index could not be kept next to the file; None when it was
    """

    def __init__(
        self,
        path: Path,
        identity: Identity,
        names: list[bytes | None],
        entries: Entries,
        unsaved: str | None,
    ) -> None:
        self.path = path
        self.name = entries.name
        self.identity = identity
        self.databases = [name for name in names if name is not None]
        self.unsaved = unsaved
        self.offsets: NDArray[np.uint64] = entries.arrays["offsets"]
        self.sizes: NDArray[np.uint32] = entries.arrays["sizes"]
        self._keys = entries.arrays["keys"].data
        self._key_ends = entries.arrays.get("key_ends")
        self._key_size = entries.key_size
        self._flags = entries.flags

    @staticmethod
    def open(path: Path, database: bytes | None = None, *, tell: Tell | None = None) -> Index:
        """Return the index of `path` (an LMDB folder or its data file), read from the file next to
        it or made now.

        `tell` is called with pages done and pages in all while it is made. Raises UsageError when
        the file is missing, damaged, of another format, has no such database, or is written faster
        than it can be read.
        """
        return _open(path, tell, lambda names: [_position(names, database, path)])[0]

    @staticmethod
    def all(path: Path, *, tell: Tell | None = None) -> list[Index]:
        """Return indexes as `open`, for every database of the file, the main one first."""
        return _open(path, tell, lambda names: list(range(len(names))))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def txn(self) -> int:
        return self.identity.txn

    @property
    def duplicates(self) -> bool:
        """Return True if a key can have several records (MDB_DUPSORT)."""
        return bool(self._flags & DUPLICATES)

    def key(self, position: int) -> bytes:
        """The key of the record at `position`, 0 <= position < len(self)."""
        if self._key_size is not None:
            start = position * self._key_size
            return bytes(self._keys[start : start + self._key_size])
        assert self._key_ends is not None
        start = int(self._key_ends[position - 1]) if position else 0
        return bytes(self._keys[start : int(self._key_ends[position])])

    def keys(self) -> Iterator[bytes]:
        """Every record's key in order; a key with duplicates as often as it has records."""
        if (size := self._key_size) is not None:
            for start in range(0, len(self) * size, size) if size else ():
                yield bytes(self._keys[start : start + size])
            return
        start = 0
        assert self._key_ends is not None
        for end in self._key_ends.tolist():
            yield bytes(self._keys[start:end])
            start = end

    def keys_at(self, positions: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
        """The keys of the records at `positions`, one after the other, and where each key ends."""
        import numpy as np

        if (size := self._key_size) is not None:
            ends = np.arange(1, len(positions) + 1, dtype=np.int64) * size
            table = np.frombuffer(self._keys, np.uint8).reshape(len(self), size)
            return table[positions].tobytes(), ends
        assert self._key_ends is not None
        stops = self._key_ends[positions].astype(np.int64)
        starts = np.where(positions > 0, self._key_ends[positions - 1], 0).astype(np.int64)
        ends = np.cumsum(stops - starts)
        shift = np.repeat(starts - (ends - (stops - starts)), stops - starts)
        every = np.frombuffer(self._keys, np.uint8)
        return every[np.arange(len(shift)) + shift].tobytes(), ends

    def find(self, key: bytes) -> int | None:
        """The position of the key's (first) record; None when there is none.

        For databases in an order of LMDB's own; a database written with a comparison function of
        its program's is in no order that a file records.
        """
        at = self.seek(key)
        return at if at < len(self) and self.key(at) == key else None

    def seek(self, key: bytes) -> int:
        """The position of the first record with this key or a later one; len(self) without any."""
        # both of LMDB's other orders compare from the last byte on
        backwards = self._flags & (REVERSE_KEY | INTEGER_KEY)
        step = -1 if backwards else 1
        wanted = key[::step]
        return bisect_left(range(len(self)), wanted, key=lambda i: self.key(i)[::step])

    def stale(self) -> bool:
        """Return True if the file has changed since: another transaction, or another file there.

        Raises UsageError when the file cannot be read any more.
        """
        with opened(self.path) as data:
            return data.identity != self.identity

    def holds(self) -> bool:
        """Return True if all that was read by this index until now is right, even if it is
        stale."""
        try:
            with opened(self.path) as data:
                if data.identity.inode != self.identity.inode:
                    return False
                return data.has(bytes.fromhex(self.identity.meta))
        except UsageError:
            return False


def _open(path: Path, tell: Tell | None, choose: Choose) -> list[Index]:
    with opened(path) as data:
        if (kept := _kept(data, choose)) is not None:
            return kept
    for _ in range(ATTEMPTS):
        with opened(path) as data:
            try:
                databases = scan(data, tell)
            except UsageError:
                if data.holds():  # then the bytes that were read are the file's
                    raise
                continue
            if data.holds():
                return _save(data, databases, choose)
    raise UsageError(
        f"{data_path(path)} changed while it was read, in all {ATTEMPTS} attempts",
        remedy="retry when no process writes to it",
    )


def _kept(data: DataFile, choose: Choose) -> list[Index] | None:
    reader = IndexReader(beside(data.path))
    if reader.header is None or reader.header.identity != data.identity:
        return None
    databases = reader.header.databases
    names = [None if d.name is None else bytes.fromhex(d.name) for d in databases]
    kept = []
    for at in choose(names):
        arrays = reader.arrays(databases[at])
        if arrays is None:
            return None
        entries = Entries(names[at], databases[at].flags, databases[at].key_size, arrays)
        kept.append(Index(data.path, data.identity, names, entries, unsaved=None))
    return kept


def _save(data: DataFile, databases: list[Entries], choose: Choose) -> list[Index]:
    names = [database.name for database in databases]
    chosen = [databases[at] for at in choose(names)]
    unsaved = None
    try:
        write_index(beside(data.path), data.identity, databases)
    except UsageError as error:
        unsaved = str(error)
    return [Index(data.path, data.identity, names, database, unsaved) for database in chosen]


def _position(names: list[bytes | None], name: bytes | None, path: Path) -> int:
    if name in names:
        return names.index(name)
    known = ", ".join(repr(n.decode(errors="replace")) for n in names if n is not None)
    raise UsageError(
        f"{path} has no database {(name or b'').decode(errors='replace')!r}",
        remedy=f"choose from {known}"
        if known
        else "leave out the name: the file has no named databases",
    )
