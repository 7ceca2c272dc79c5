"""Scan and verification of LMDB files, by a native part.

The native part is built at first use and called through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dltune.base.errors import UsageError
from dltune.native.binding import bound
from dltune.systems.lmdb.format.datafile import DataFile, Db, opened

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray


Tell = Callable[[int, int], None]  # leaf pages done, and in all, of the tree being walked

_TELL = ctypes.CFUNCTYPE(c_int, c_uint64, c_uint64)
_WHY_BYTES = 1 << 16


class File(ctypes.Structure):
    """Layout of source.h's File."""

    _fields_ = (
        ("descriptor", c_int32),
        ("version", c_uint32),
        ("page_size", c_uint32),
        ("size", c_uint64),
        ("last_page", c_uint64),
        ("txn", c_uint64),
    )


class Records(ctypes.Structure):
    """Layout of index.cc's Records."""

    _fields_ = (
        ("count", c_uint64),
        ("offsets", POINTER(c_uint64)),
        ("sizes", POINTER(c_uint32)),
        ("keys", POINTER(c_uint8)),
        ("key_ends", POINTER(c_uint64)),
        ("named_count", c_uint64),
        ("names", POINTER(c_uint8)),
        ("name_ends", POINTER(c_uint64)),
        ("named", POINTER(Db)),
    )


class Counts(ctypes.Structure):
    """Layout of verify.cc's Counts."""

    _fields_ = tuple((n, c_uint64) for n in ("databases", "records", "used", "free", "faults"))


@functools.cache
def load() -> ctypes.CDLL:
    """Raises DltuneError, with the compiler's last lines, when it cannot be built."""
    here, db, count = Path(__file__).parent, POINTER(Db), POINTER(Counts)
    why = (c_char_p, c_int)
    return bound(
        "lmdb",
        [here / "index.cc", here / "verify.cc"],
        "the LMDB reader",
        {
            "dltune_lmdb_scan_new": (c_void_p, POINTER(File)),
            "dltune_lmdb_scan_delete": (None, c_void_p),
            "dltune_lmdb_index": (c_int, c_void_p, db, _TELL, POINTER(Records), *why),
            "dltune_lmdb_settle": (c_int, c_void_p, db, *why),
            "dltune_lmdb_verify": (c_int, POINTER(File), db, db, _TELL, count, *why),
        },
        *(File, Db, Records, Counts),
    )


class Call:
    """Calls into the native part for one file: errors become UsageError, `tell` can raise."""

    def __init__(self, data: DataFile, tell: Tell | None) -> None:
        meta = data.meta
        self.file = File(
            data.descriptor, meta.version, meta.page_size, data.size, meta.last_page, meta.txn
        )
        self._path = data.path
        self._why = ctypes.create_string_buffer(_WHY_BYTES)
        self._raised: BaseException | None = None

        def told(done: int, all_: int) -> int:
            try:
                if tell:
                    tell(done, all_)
            except BaseException as error:  # an interrupt too: ctypes would swallow it
                self._raised = error
                return 1
            return 0

        self.tell = _TELL(told)

    def __call__(self, function: Callable[..., int], *arguments: object) -> str:
        """Return the function's message in `why`. Raises UsageError for a fault."""
        code = function(*arguments, self._why, _WHY_BYTES)
        why = self._why.value.decode(errors="replace")
        if self._raised:
            raise self._raised
        if code == 1:
            raise UsageError(
                f"{self._path} is damaged: {why}",
                remedy="restore the file, or copy it again; `dltune lmdb verify` lists all faults",
            )
        if code:
            raise UsageError(
                f"there is not enough memory to read {self._path}",
                remedy="use a machine with more memory",
            )
        return why


EMPTY = {"offsets": "u8", "sizes": "u4", "keys": "u1", "key_ends": "u8"}


@dataclass(frozen=True)
class Entries:
    """A database's records in key order.

    `name` is None for the main database. `key_size` is in bytes, None when keys differ in size.
    Arrays: `offsets` (n,) uint64 and `sizes` (n,) uint32 of the values, `keys` (bytes,) uint8 one
    after the other, and where keys differ in size `key_ends` (n,) uint64.
    """

    name: bytes | None
    flags: int
    key_size: int | None
    arrays: dict[str, NDArray[Any]]


def scan(data: DataFile, tell: Tell | None) -> list[Entries]:
    """Every database of the file, the main one first.

    Reads tree pages only; overflow pages, which hold large records, are not touched. Raises
    UsageError when the file is damaged: every tree's pages carry their numbers, are filled as LMDB
    fills them, and hold as many records as their header says; no page is used twice, or is used and
    listed as free.

    One pass over a snapshot finds the positions of the records of each database.
    """
    native = load()
    call = Call(data, tell)
    handle = native.dltune_lmdb_scan_new(call.file)
    if not handle:
        raise MemoryError
    try:

        def index(name: bytes | None, db: Db) -> tuple[Entries, list[tuple[bytes, Db]]]:
            records = Records()
            call(native.dltune_lmdb_index, handle, db, call.tell, records)
            return Entries(name, db.flags, *_arrays(records)), _named(records)

        main, named = index(None, data.meta.main)
        databases = [main]
        for stored, db in named:
            # LMDB 1.0 stores a name with a zero at its end
            name = stored.removesuffix(b"\0") if data.meta.version == 3 else stored
            database, within = index(name, db)
            if within:
                raise UsageError(
                    f"{data.path}: database {name.decode(errors='replace')!r} contains "
                    "databases, which LMDB does not write",
                    remedy="restore the file, or copy it again",
                )
            databases.append(database)
        call(native.dltune_lmdb_settle, handle, data.meta.free)
        return databases
    finally:
        native.dltune_lmdb_scan_delete(handle)


def _named(records: Records) -> list[tuple[bytes, Db]]:
    """The named databases, copied as below."""
    ends = records.name_ends[: records.named_count]
    return [
        (bytes(records.names[start:end]), Db.from_buffer_copy(records.named[at]))
        for at, (start, end) in enumerate(pairwise([0, *ends]))
    ]


def _arrays(records: Records) -> tuple[int | None, dict[str, NDArray[Any]]]:
    """Copies, because the native part's memory lives until its next call."""
    import numpy as np

    count = records.count
    if not count:
        return None, {label: np.empty(0, kind) for label, kind in EMPTY.items()}
    as_array = np.ctypeslib.as_array
    ends = as_array(records.key_ends, (count,))
    arrays: dict[str, NDArray[Any]] = {
        "offsets": as_array(records.offsets, (count,)).copy(),
        "sizes": as_array(records.sizes, (count,)).copy(),
        "keys": as_array(records.keys, (int(ends[-1]),)).copy(),
    }
    size = int(ends[0])
    if int(ends[-1]) == size * count and bool((np.diff(ends) == size).all()):
        return size, arrays
    arrays["key_ends"] = ends.copy()
    return None, arrays


class VerifyReport(msgspec.Struct, frozen=True):
    """Result for one snapshot. `faults`: sentences, the first 50 of `fault_count`.

    Pages: `used` by trees and records, `free` in LMDB's list, `lost` in neither (a waste of room,
    not a fault).
    """

    path: str
    version: int
    page_size: int
    txn: int
    databases: int
    records: int
    used: int
    free: int
    lost: int
    fault_count: int
    faults: list[str]


def verify(path: Path, *, tell: Tell | None = None) -> VerifyReport:
    """Checks the file's newest snapshot, as far as LMDB's structure goes; records are only bytes.

    Reads all tree pages, the first page of each record on overflow pages, and the list of free
    pages. Keys must be in one of LMDB's own orders. Raises UsageError when this is no LMDB file
    that dltune reads, or when it was written to meanwhile.

    Every page must be in one place, trees in order, and counts right.
    """
    native = load()
    with opened(path) as data:
        counts = Counts()
        call = Call(data, tell)
        meta = data.meta
        faults = call(native.dltune_lmdb_verify, call.file, meta.free, meta.main, call.tell, counts)
        if not data.holds():
            raise UsageError(
                f"{data.path} changed while it was verified",
                remedy="retry when no process writes to it",
            )
        return VerifyReport(
            path=str(data.path),
            version=meta.version,
            page_size=meta.page_size,
            txn=meta.txn,
            databases=counts.databases,
            records=counts.records,
            used=counts.used,
            free=counts.free,
            lost=0 if counts.faults else meta.last_page - 1 - counts.used - counts.free,
            fault_count=counts.faults,
            faults=faults.splitlines(),
        )
