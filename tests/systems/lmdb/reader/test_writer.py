"""A writer commits while records are read: never a wrong record, and stale indexes are noticed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import lmdb
import pytest
from making import held

from dltune.base.errors import UsageError
from dltune.systems.lmdb import Options, ReadAhead, Reader, Records
from dltune.systems.lmdb.reader.database import Database

Got = TypeVar("Got")

COUNT = 120
# every commit writes every record anew, its own number in it, in sizes that come and go; pauses
# grow, so that they become long enough to read in on any machine
WRITER = """
import sys, time, lmdb
env = lmdb.open(sys.argv[1], map_size=1 << 28, sync=False)
number = 0
while True:
    number += 1
    with env.begin(write=True) as txn:
        for i in range({count}):
            size = (i * 131 + number * 977) % 9000
            txn.put(b"%06d" % i, b"%08d" % number + b"%06d" % i + bytes([number % 251]) * size)
    if number == 3:
        print("ready", flush=True)
    time.sleep(float(sys.argv[2]) * (1 + number / 20))
"""


@contextmanager
def writing(folder: Path, pause: float) -> Iterator[None]:
    command = [sys.executable, "-c", WRITER.format(count=COUNT), str(folder), str(pause)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        yield
    finally:
        writer.kill()
        writer.communicate()


def written_too_fast(error: UsageError) -> bool:
    """Whether it is what is told where a writer commits faster than its file can be read."""
    told = ("overwritten while it was read", "changed while it was read", "being written faster")
    return any(words in str(error) for words in told)


def once_there_is_time(read: Callable[[], Got]) -> Got:
    """What `read` returns when a pause is long enough for it; until then it gives no answer."""
    until = time.monotonic() + 240
    while True:
        try:
            return read()
        except UsageError as error:
            if not written_too_fast(error) or time.monotonic() > until:
                raise


def require_committed(key: bytes, value: bytes) -> int:
    """The commit that wrote this value, which is whole and its key's own."""
    number, at = int(value[:8]), int(value[8:14])
    assert key == b"%06d" % at
    assert value[14:] == bytes([number % 251]) * ((at * 131 + number * 977) % 9000)
    return number


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("pause", [0.02, 0.2])
def test_every_record_of_a_reader_was_committed(tmp_path: Path, direct: bool, pause: float) -> None:
    commits: set[int] = set()
    told = set()
    with writing(tmp_path, pause):
        until = time.monotonic() + 240
        while len(commits) < 8 and time.monotonic() < until:
            options = Options(direct=direct, memory=1 << 20)
            with Reader(tmp_path, batch=5, options=options) as reader:
                try:
                    for at, records in zip(range(200), reader, strict=False):
                        for place, (key, value) in enumerate(records):
                            assert key == b"%06d" % ((at * 5 + place) % COUNT)
                            commits.add(require_committed(key, value))
                except UsageError as error:  # allowed: no answer. Never: a wrong one
                    told.add(written_too_fast(error))
    assert told <= {True}
    assert len(commits) >= 8


def test_every_record_of_a_sampler_was_committed(tmp_path: Path) -> None:
    commits: set[int] = set()
    wanted = [7, 100, 3, 7, 55]
    with (
        writing(tmp_path, 0.05),
        once_there_is_time(lambda: Records(tmp_path)) as records,
    ):
        until = time.monotonic() + 240
        while len(commits) < 8 and time.monotonic() < until:
            got = once_there_is_time(lambda: records.read(wanted))
            assert [key for key, _ in got] == [b"%06d" % at for at in wanted]
            # one read is of one snapshot
            assert len({require_committed(key, value) for key, value in got}) == 1
            commits.add(require_committed(*got[0]))
    assert len(commits) >= 8


def test_py_lmdb_under_hints_is_never_wrong(tmp_path: Path) -> None:
    with writing(tmp_path, 0.02):
        hinted = once_there_is_time(
            lambda: ReadAhead(tmp_path, list(range(COUNT)) * 20, ahead=1 << 16)
        )
        with lmdb.open(str(tmp_path), readonly=True) as env:
            for key in hinted.keys():  # noqa: SIM118 - it is no mapping
                with env.begin() as txn:
                    require_committed(key, txn.get(key))


def commit(folder: Path, *, put: dict[bytes, bytes], delete: tuple[bytes, ...] = ()) -> None:
    with lmdb.open(str(folder), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key, value in put.items():
            txn.put(key, value)
        for key in delete:
            txn.delete(key)


def test_a_snapshot_stays_until_it_may_be_written_over(tmp_path: Path) -> None:
    """After one more commit the snapshot's pages still are as they were; after two nobody knows."""
    commit(tmp_path, put={b"%02d" % i: b"old" for i in range(10)})
    with Records(tmp_path) as records:
        commit(tmp_path, put={b"05": b"new"})
        assert records._database.index.stale()
        assert records[5].value == b"old"
        assert records._database.overtaken == 0
        commit(tmp_path, put={b"06": b"new"})
        assert records.read([5, 6, 7]) == [(b"05", b"new"), (b"06", b"new"), (b"07", b"old")]
        assert records._database.overtaken == 1
        assert records._database.index.txn == 3


def test_positions_mean_keys(tmp_path: Path) -> None:
    """Of a deleted record the next one is read, as a cursor does; new ones shift nothing."""
    commit(tmp_path, put={b"%02d" % i: b"%d" % i for i in range(10)})
    database = Database(tmp_path, None, direct=False)
    with Records(tmp_path) as records:
        commit(tmp_path, put={b"00a": b"new"}, delete=(b"03", b"04", b"09"))
        commit(tmp_path, put={b"01": b"one"})
        got = [record.key for record in records.read(range(10))]
    assert got == [b"00", b"01", b"02", b"05", b"05", b"05", b"06", b"07", b"08", b"00"]
    database.overtake()
    with lmdb.open(str(tmp_path)) as env:
        assert len(database.index) == len(held(env)) == 8
    assert len(database) == 10
    database.close()


def test_duplicates_keep_their_places(tmp_path: Path) -> None:
    import numpy as np

    with lmdb.open(str(tmp_path), max_dbs=1) as env:
        db = env.open_db(b"d", dupsort=True)
        with env.begin(write=True, db=db) as txn:
            for value in (b"a", b"c", b"e"):
                txn.put(b"k", value)
            txn.put(b"l", b"z")
        database = Database(tmp_path, b"d", direct=False)
        with env.begin(write=True, db=db) as txn:
            txn.put(b"a", b"first")
            txn.delete(b"k", b"e")
    database.overtake()
    assert database.current(np.arange(4)).tolist() == [1, 2, 2, 3]
    database.close()


def test_all_records_deleted_is_told(tmp_path: Path) -> None:
    commit(tmp_path, put={b"a": b"1"})
    with Records(tmp_path) as records:
        commit(tmp_path, put={b"b": b"2"})
        commit(tmp_path, put={}, delete=(b"a", b"b"))
        with pytest.raises(UsageError, match="all records"):
            records.read([0])
