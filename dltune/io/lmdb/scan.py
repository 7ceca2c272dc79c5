"""One pass over a snapshot: where the records of each of its databases lie."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dltune.errors import UsageError
from dltune.io.lmdb import lmdb_binding as binding
from dltune.io.lmdb.datafile import DataFile
from dltune.io.lmdb.lmdb_binding import Call, Tell

if TYPE_CHECKING:
    from dltune.io.lmdb.index_file import Array

Named = list[tuple[bytes, binding.Db]]

EMPTY = {"offsets": "u8", "sizes": "u4", "keys": "u1", "key_ends": "u8"}


@dataclass(frozen=True)
class Found:
    """A database's records in key order.

    `name` is None for the main database. `key_size` is in bytes, None when keys differ in size.
    Arrays: `offsets` (n,) uint64 and `sizes` (n,) uint32 of the values, `keys` (bytes,) uint8 one
    after the other, and where keys differ in size `key_ends` (n,) uint64.
    """

    name: bytes | None
    flags: int
    key_size: int | None
    arrays: dict[str, Array]


def scan(data: DataFile, tell: Tell | None) -> list[Found]:
    """Every database of the file, the main one first.

    Reads tree pages only; overflow pages, where large records lie, are not touched. Raises
    UsageError when the file is damaged: every tree's pages carry their numbers, are filled as LMDB
    fills them, and hold as many records as their header says; no page is used twice, or is used and
    listed as free.
    """
    native = binding.load()
    call = Call(data, tell)
    handle = native.dltune_lmdb_scan_new(ctypes.byref(binding.file(data)))
    if not handle:
        raise MemoryError
    try:

        def index(name: bytes | None, db: binding.Db) -> tuple[Found, Named]:
            made = binding.Records()
            call(native.dltune_lmdb_index, handle, ctypes.byref(db), call.tell, ctypes.byref(made))
            return Found(name, db.flags, *_arrays(made)), _named(made)

        main, named = index(None, binding.db(data.meta.main))
        found = [main]
        for stored, db in named:
            # LMDB 1.0 stores a name with a zero at its end
            name = stored.removesuffix(b"\0") if data.meta.version == 3 else stored
            database, within = index(name, db)
            if within:
                raise UsageError(
                    f"{data.path}: database {name.decode(errors='replace')!r} holds databases of "
                    "its own, which LMDB does not make"
                )
            found.append(database)
        call(native.dltune_lmdb_settle, handle, ctypes.byref(binding.db(data.meta.free)))
        return found
    finally:
        native.dltune_lmdb_scan_delete(handle)


def _named(made: binding.Records) -> Named:
    named: Named = []
    start = 0
    for i in range(made.named_count):
        end = made.name_ends[i]
        named.append((bytes(made.names[start:end]), binding.Db.from_buffer_copy(made.named[i])))
        start = end
    return named


def _arrays(made: binding.Records) -> tuple[int | None, dict[str, Array]]:
    """Copies, because the native part's memory lives until its next call."""
    import numpy as np

    count = made.count
    if not count:
        return None, {label: np.empty(0, kind) for label, kind in EMPTY.items()}
    as_array = np.ctypeslib.as_array
    ends = as_array(made.key_ends, (count,))
    arrays: dict[str, Array] = {
        "offsets": as_array(made.offsets, (count,)).copy(),
        "sizes": as_array(made.sizes, (count,)).copy(),
        "keys": as_array(made.keys, (int(ends[-1]),)).copy(),
    }
    size = int(ends[0])
    if int(ends[-1]) == size * count and bool((np.diff(ends) == size).all()):
        return size, arrays
    arrays["key_ends"] = ends.copy()
    return None, arrays
