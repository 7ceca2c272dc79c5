"""One pass over a snapshot: the positions of the records of each of its databases."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format import lmdb_binding as binding
from dltune.systems.lmdb.format.datafile import DataFile
from dltune.systems.lmdb.format.lmdb_binding import Call, Tell
from dltune.systems.lmdb.format.meta import Db

if TYPE_CHECKING:
    from dltune.systems.lmdb.format.index_file import Array

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
    arrays: dict[str, Array]


def scan(data: DataFile, tell: Tell | None) -> list[Entries]:
    """Every database of the file, the main one first.

    Reads tree pages only; overflow pages, which hold large records, are not touched. Raises
    UsageError when the file is damaged: every tree's pages carry their numbers, are filled as LMDB
    fills them, and hold as many records as their header says; no page is used twice, or is used and
    listed as free.
    """
    native = binding.load()
    call = Call(data, tell)
    handle = native.dltune_lmdb_scan_new(call.file)
    if not handle:
        raise MemoryError
    try:

        def index(name: bytes | None, db: Db) -> tuple[Entries, list[tuple[bytes, Db]]]:
            records = binding.Records()
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


def _named(records: binding.Records) -> list[tuple[bytes, Db]]:
    """The named databases, copied as below."""
    ends = records.name_ends[: records.named_count]
    return [
        (bytes(records.names[start:end]), Db.from_buffer_copy(records.named[at]))
        for at, (start, end) in enumerate(pairwise([0, *ends]))
    ]


def _arrays(records: binding.Records) -> tuple[int | None, dict[str, Array]]:
    """Copies, because the native part's memory lives until its next call."""
    import numpy as np

    count = records.count
    if not count:
        return None, {label: np.empty(0, kind) for label, kind in EMPTY.items()}
    as_array = np.ctypeslib.as_array
    ends = as_array(records.key_ends, (count,))
    arrays: dict[str, Array] = {
        "offsets": as_array(records.offsets, (count,)).copy(),
        "sizes": as_array(records.sizes, (count,)).copy(),
        "keys": as_array(records.keys, (int(ends[-1]),)).copy(),
    }
    size = int(ends[0])
    if int(ends[-1]) == size * count and bool((np.diff(ends) == size).all()):
        return size, arrays
    arrays["key_ends"] = ends.copy()
    return None, arrays
