"""Checks of a whole LMDB file: every page in one place, trees in order, counts right."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format import lmdb_binding as binding
from dltune.systems.lmdb.format.datafile import opened
from dltune.systems.lmdb.format.lmdb_binding import Call, Tell


class Report(msgspec.Struct, frozen=True):
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


def verify(path: Path, *, tell: Tell | None = None) -> Report:
    """Checks the file's newest snapshot, as far as LMDB's structure goes; records are only bytes.

    Reads all tree pages, the first page of each record on overflow pages, and the list of free
    pages. Keys must be in one of LMDB's own orders. Raises UsageError when this is no LMDB file
    that dltune reads, or when it was written to meanwhile.
    """
    native = binding.load()
    with opened(path) as data:
        counts = binding.Counts()
        call = Call(data, tell)
        meta = data.meta
        faults = call(native.dltune_lmdb_verify, call.file, meta.free, meta.main, call.tell, counts)
        if not data.holds():
            raise UsageError(
                f"{data.path} changed while it was verified",
                remedy="retry when no process writes to it",
            )
        return Report(
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
