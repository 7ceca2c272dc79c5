"""LMDB data files: how a file is opened, and what its two meta pages say.

The meta pages hold the version of the format and the committed snapshots. A commit writes the older
meta page, so the two take turns: transaction T is in page T mod 2, and the newer of the two is the
current database.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError

MAGIC = 0xBEEFC0DE
META_FLAG = 0x08
ENCRYPTED = 0x2000  # of an environment
LARGEST_PAGE = {1: 0x8000, 3: 0x10000}
PAGES_LIMIT = 1 << 46  # branch nodes have 48 bits for a page; with this, offsets fit 63
ATTEMPTS = 1000
OWN_DUMP = "let that program write a copy without encryption and checksums"
NO_LMDB = "name a complete LMDB data file (data.mdb)"

Read = Callable[[int, int], bytes]  # (offset, length) -> at most that many bytes

_META = struct.Struct("<IIQQ48s48sQQ")


class Db(ctypes.Structure):
    """One tree's record (MDB_db): `entries` records under page `root`, `depth` levels.

    Laid out as page.h's Db, and as in the file.
    """

    _fields_ = (
        ("pad", ctypes.c_uint32),
        ("flags", ctypes.c_uint16),
        ("depth", ctypes.c_uint16),
        ("branch_pages", ctypes.c_uint64),
        ("leaf_pages", ctypes.c_uint64),
        ("overflow_pages", ctypes.c_uint64),
        ("entries", ctypes.c_uint64),
        ("root", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Meta:
    """One committed snapshot. Sizes in bytes; `raw` is the record as it is in the file."""

    version: int
    page_size: int
    last_page: int
    txn: int
    free: Db
    main: Db
    raw: bytes


def read_metas(read: Read, source: str) -> tuple[Meta, Meta]:
    """Return both meta pages; `source` names the file in messages.

    Raises UsageError when this is no LMDB file, one of another machine's format or of an unknown
    version, or when a field that the format fixes is wrong.
    """
    before = None
    for _ in range(ATTEMPTS):
        head = read(0, 24 + _META.size)
        header = _header_size(head, source)
        first = _meta(head, header, 0, source)
        pages = (head, read(first.page_size, 24 + _META.size))
        if pages == before:  # else a commit came between the two reads, or is being written
            _refuse_coded(first, read, source)
            return first, _second(first, pages[1], header, source)
        before = pages
    raise UsageError(
        f"{source} is being written faster than its meta pages can be read",
        remedy="retry when no process writes to it",
    )


def _refuse_coded(meta: Meta, read: Read, source: str) -> None:
    """LMDB 1.0 lets a program encrypt pages, or end them with checksums; how is the program's."""
    if meta.version != 3:
        return
    if meta.free.flags & ENCRYPTED:
        raise UsageError(f"{source} is encrypted by the program that wrote it", remedy=OWN_DUMP)
    if any(read(meta.page_size - 2, 2)):
        raise UsageError(
            f"{source} has page checksums that only the program that wrote it can check",
            remedy=OWN_DUMP,
        )


def _second(first: Meta, page: bytes, header: int, source: str) -> Meta:
    second = _meta(page, header, 1, source)
    if first.page_size != second.page_size:
        raise _damaged(source, "the meta pages have different page sizes")
    if first.txn and second.txn and abs(first.txn - second.txn) != 1:
        raise _damaged(
            source,
            f"the meta pages have transactions {first.txn} and {second.txn}, which do not "
            "follow each other",
        )
    return second


def _header_size(head: bytes, source: str) -> int:
    """Return 16 or 24, bytes of page header, by the position of the magic number."""
    if not head:
        raise UsageError(f"{source} is empty", remedy=NO_LMDB)

    little, big = MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big")
    if head.startswith(little, 16):
        # a 32-bit LMDB 1.0 has its magic here too, but says version 3
        if head.startswith(b"\3\0\0\0", 20):
            raise _foreign(source, "a 32-bit machine")
        return 16
    if head.startswith(little, 24):
        return 24
    if head.startswith(little, 12):
        raise _foreign(source, "a 32-bit machine")
    if any(head.startswith(big, at) for at in (12, 16, 24)):
        raise _foreign(source, "a big-endian machine")
    raise UsageError(f"{source} is not an LMDB data file (no magic number)", remedy=NO_LMDB)


def _meta(page: bytes, header: int, number: int, source: str) -> Meta:
    if len(page) < header + _META.size:
        raise _damaged(source, f"it ends inside meta page {number}")
    raw = page[header : header + _META.size]
    magic, version, _, _, *trees, last_page, txn = _META.unpack(raw)
    expected = 1 if header == 16 else 3
    if magic != MAGIC:
        raise _damaged(source, f"meta page {number} has no magic number")
    if version != expected:
        raise UsageError(
            f"{source} has LMDB data version {version} with {header}-byte page headers; "
            "dltune reads versions 1 (LMDB 0.9) and 3 (LMDB 1.0)",
            remedy="copy it: mdb_dump of the LMDB that wrote it, then mdb_load of a released LMDB",
        )
    flags = struct.unpack_from("<H", page, header - 6)[0]
    if struct.unpack_from("<Q", page)[0] != number or not flags & META_FLAG:
        raise _damaged(source, f"page {number} is not meta page {number}")
    free, main = map(Db.from_buffer_copy, trees)
    size = free.pad
    if size & (size - 1) or not 256 <= size <= LARGEST_PAGE[version]:
        raise _damaged(source, f"meta page {number} has a page size of {size} bytes")
    if not 1 <= last_page < PAGES_LIMIT:
        raise _damaged(source, f"meta page {number} gives {last_page} as the last page")
    if txn and txn % 2 != number:
        raise _damaged(
            source, f"meta page {number} has transaction {txn}, which belongs in the other one"
        )
    return Meta(version, size, last_page, txn, free, main, raw)


def _damaged(source: str, what: str) -> UsageError:
    return UsageError(f"{source} is damaged: {what}", remedy="restore the file, or copy it again")


def _foreign(source: str, where: str) -> UsageError:
    return UsageError(
        f"{source} is an LMDB file of {where}; dltune reads files of 64-bit little-endian machines",
        remedy="dump it on that machine (mdb_dump) and load it here (mdb_load)",
    )


NAME = "data.mdb"  # of the data file in an environment's folder


class Identity(msgspec.Struct, frozen=True):
    """By which a file is known again. Whatever is written to it, or put in its place, changes it.

    `ctime` in nanoseconds is set by the kernel at each change, unlike the time of modification,
    which `cp -p` and `rsync` bring along. `meta` is the newest snapshot's meta page, in hex.
    """

    inode: int
    size: int
    ctime: int
    txn: int
    meta: str


class DataFile:
    """A data file as it was at one committed transaction. Made by `opened`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.meta: Meta = max(read_metas(self._read, str(path)), key=lambda meta: meta.txn)
        status = os.fstat(descriptor)  # after the meta page: the file can have grown for its pages
        self.size = status.st_size
        self.identity = Identity(
            status.st_ino, status.st_size, status.st_ctime_ns, self.meta.txn, self.meta.raw.hex()
        )

    def holds(self) -> bool:
        """Return True if the snapshot's meta page is still as it was when the file was opened.

        If so, all that was read of the snapshot's pages until now is right (see the package).
        """
        return self.has(self.meta.raw)

    def has(self, raw: bytes) -> bool:
        """Return True if one of the meta pages, read again, is `raw`."""
        try:
            return any(meta.raw == raw for meta in read_metas(self._read, str(self.path)))
        except UsageError:
            return False

    def _read(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self.descriptor, length, offset)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", remedy=None) from None


def data_path(path: Path) -> Path:
    """The data file that `path` means: itself, or the file in the environment's folder."""
    try:
        return path / NAME if (path / NAME).exists() else path
    except OSError:  # a name too long, a folder that cannot be read: opening it will report that
        return path


@contextmanager
def opened(path: Path) -> Iterator[DataFile]:
    """The data file at `path` (or in the folder `path`), open until the block ends.

    Raises UsageError when there is none, when it is not a plain file, or no LMDB file.
    """
    path = data_path(path)
    descriptor = open_plain(path)
    try:
        yield DataFile(path, descriptor)
    finally:
        os.close(descriptor)


def open_plain(path: Path) -> int:
    """A descriptor of the plain file at `path`; the caller closes it.

    Raises UsageError for a folder, a pipe, a device, and for what cannot be opened.
    """
    try:
        # a pipe without a writer would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=None) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise UsageError(
            f"{path} is a folder without {NAME}", remedy="name a data file, or an LMDB folder"
        )
    raise UsageError(f"{path} is not a regular file", remedy="name a data file")
