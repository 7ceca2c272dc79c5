"""LMDB environments made by py-lmdb, and what they hold by its account and by dltune's."""

from __future__ import annotations

from pathlib import Path

import lmdb

from dltune.systems.lmdb.format.datafile import opened
from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.format.lmdb_binding import Entries, scan

ENGINES = {1: 0, 3: 1}  # data version -> py-lmdb's lib_version
Contents = dict[bytes | None, list[tuple[bytes, bytes]]]


def environment(folder: Path, version: int) -> lmdb.Environment:
    return lmdb.open(
        str(folder),
        map_size=1 << 26,
        max_dbs=8,
        lib_version=ENGINES[version],
        sync=False,
        metasync=False,
    )


def by_lmdb(env: lmdb.Environment, names: list[bytes]) -> Contents:
    """Every database's records; the main one's without the records of named databases."""
    found: Contents = {}
    with env.begin() as txn:
        stored = {*names, *(name + b"\0" for name in names)}
        found[None] = [(bytes(k), bytes(v)) for k, v in txn.cursor() if k not in stored]
    for name in names:
        db = env.open_db(name, create=False)
        with env.begin(db=db) as txn:
            found[name] = [(bytes(k), bytes(v)) for k, v in txn.cursor()]
    return found


def by_index(folder: Path) -> Contents:
    data = (folder / "data.mdb").read_bytes()
    return {index.name: records(index, data) for index in Index.all(folder)}


def records(index: Index, data: bytes) -> list[tuple[bytes, bytes]]:
    places = zip(index.keys(), index.offsets.tolist(), index.sizes.tolist(), strict=True)
    return [(key, data[at : at + size]) for key, at, size in places]


def scanned(path: Path) -> dict[bytes | None, list[tuple[bytes, int, int]]]:
    """What one pass finds, as the slow parser tells it. Nothing is kept beside the file."""
    with opened(path) as data:
        return {found.name: places(found) for found in scan(data, None)}


def places(found: Entries) -> list[tuple[bytes, int, int]]:
    arrays = found.arrays
    keys = arrays["keys"].tobytes()
    offsets, sizes = arrays["offsets"].tolist(), arrays["sizes"].tolist()
    if found.key_size is not None:
        ends = [found.key_size * (i + 1) for i in range(len(offsets))]
    else:
        ends = arrays["key_ends"].tolist()
    starts = [0, *ends[:-1]]
    return [
        (keys[start:end], at, size)
        for start, end, at, size in zip(starts, ends, offsets, sizes, strict=False)
    ]
