"""The index against py-lmdb's reading and a slow parser's, and on files of other writers."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import lmdb
import pytest
import slow_parser
from hypothesis import given, settings
from hypothesis import strategies as st
from made import ENGINES, by_index, by_lmdb, environment, records, scanned
from writer import Writer

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.format.lmdb_binding import verify

PAGE = 4096
# around every limit: empty, a node that just fits into half a page, one page, two, many
LIMITS = [0, 1, 2, (PAGE - 24) // 2 - 24, (PAGE - 16) // 2, PAGE - 24, PAGE - 16, PAGE]
LIMITS += [2 * PAGE - 24, 2 * PAGE - 16, 5 * PAGE]

keys = st.binary(min_size=1, max_size=12) | st.binary(min_size=500, max_size=511)
sizes = st.sampled_from(LIMITS).flatmap(lambda at: st.integers(max(0, at - 24), at + 24))
values = st.builds(lambda size, byte: bytes([byte]) * size, sizes, st.integers(1, 255))
puts = st.tuples(st.just("put"), keys, values)
# of keys put before, by their number
changes = st.tuples(st.sampled_from(["put", "delete"]), st.integers(0, 200), values)
transactions = st.lists(st.lists(puts | changes, max_size=30), max_size=12)

# the options of a named database, and a value that it takes
KINDS: dict[bytes, dict[str, bool]] = {
    b"plain": {},
    b"reverse": {"reverse_key": True},
    b"integer": {"integerkey": True},
    b"dup": {"dupsort": True},
    b"fixed": {"dupsort": True, "dupfixed": True},
    b"integerdup": {"dupsort": True, "dupfixed": True, "integerdup": True},
}


def apply(env: lmdb.Environment, all_: list[list[tuple[str, bytes | int, bytes]]]) -> None:
    seen: list[bytes] = []
    for operations in all_:
        with env.begin(write=True) as txn:
            for what, key, value in operations:
                if isinstance(key, int):
                    if not seen:
                        continue
                    key = seen[key % len(seen)]
                if what == "put":
                    seen.append(key)
                    txn.put(key, value)
                else:
                    txn.delete(key)


@pytest.mark.parametrize("version", [1, 3])
@settings(max_examples=60)
@given(operations=transactions)
def test_every_record_is_py_lmdbs(version: int, operations: list[list]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with environment(folder, version) as env:
            apply(env, operations)
            expected = by_lmdb(env, [])
        assert by_index(folder) == expected
        data = (folder / "data.mdb").read_bytes()
        assert scanned(folder) == slow_parser.parse(data)
        assert verify(folder).faults == []
        for key, _ in expected[None]:
            position = Index.open(folder).find(key)
            assert position is not None
            assert records(Index.open(folder), data)[position][0] == key


@pytest.mark.parametrize("version", [1, 3])
@settings(max_examples=40)
@given(
    main=transactions,
    named=st.lists(
        st.tuples(
            st.sampled_from(sorted(KINDS)),
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**16)), max_size=60),
            st.sampled_from([1, 3, 40, 300]),
            st.booleans(),
        ),
        max_size=6,
    ),
)
def test_named_databases_and_duplicates(version: int, main: list[list], named: list) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with environment(folder, version) as env:
            apply(env, main)
            used = set()
            for name, pairs, times, delete in named:
                db = env.open_db(name, **KINDS[name])
                used.add(name)
                with env.begin(write=True, db=db) as txn:
                    for key, value in pairs:
                        for i in range(times):
                            txn.put(*_pair(name, key, value + i))
                if delete:
                    with env.begin(write=True, db=db) as txn:
                        for key, value in pairs[::2]:
                            pair = _pair(name, key, value)
                            txn.delete(pair[0], pair[1] if "dupsort" in KINDS[name] else b"")
            expected = by_lmdb(env, sorted(used))
        assert by_index(folder) == expected
        assert scanned(folder) == slow_parser.parse((folder / "data.mdb").read_bytes())
        assert verify(folder).faults == []
        for name in used:
            index = Index.open(folder, name)
            for key, _ in expected[name]:
                position = index.find(key)
                assert position is not None
                assert index.key(position) == key
                assert position == 0 or index.key(position - 1) != key


def _pair(name: bytes, key: int, value: int) -> tuple[bytes, bytes]:
    shown = (key * 77).to_bytes(4, "little") if name == b"integer" else b"key-%d" % key
    if "dupfixed" in KINDS[name]:
        return shown, value.to_bytes(4, "little")
    return shown, b"%d" % value * (1 + value % 40)


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 100, 511])
def test_duplicates_of_every_fixed_size(tmp_path: Path, version: int, size: int) -> None:
    rng = random.Random(size)
    with environment(tmp_path, version) as env:
        db = env.open_db(b"fixed", dupsort=True, dupfixed=True)
        for turn in range(12):
            with env.begin(write=True, db=db) as txn:
                for _ in range(rng.choice([3, 30, 300])):
                    key = b"%d" % min(rng.randrange(30), 10)  # most under one key, in a tree
                    value = rng.randrange(256**2).to_bytes(2, "big")[-size:].rjust(size, b".")
                    if turn % 3 == 2:
                        txn.delete(key, value)
                    else:
                        txn.put(key, value)
            if turn % 3 == 2:
                assert by_index(tmp_path) == by_lmdb(env, [b"fixed"])
                assert verify(tmp_path).faults == []


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("compact", [False, True])
def test_copies_made_by_lmdb(tmp_path: Path, version: int, compact: bool) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    with environment(tmp_path / "from", version) as env:
        apply(env, [[("put", b"%d" % i, b"x" * i * 50)] for i in range(60)])
        expected = by_lmdb(env, [])
        env.copy(str(tmp_path / "to"), compact=compact)
    assert by_index(tmp_path / "to") == expected
    assert verify(tmp_path / "to").faults == []


@pytest.mark.parametrize("version", [1, 3])
def test_a_record_made_smaller_in_its_own_transaction(tmp_path: Path, version: int) -> None:
    with environment(tmp_path, version) as env:
        with env.begin(write=True) as txn:
            for i in range(20):
                txn.put(b"%02d" % i, b"a" * 30_000)
                txn.put(b"%02d" % i, b"b" * (30_000 >> i % 16))
        expected = by_lmdb(env, [])
    assert by_index(tmp_path) == expected
    assert verify(tmp_path).faults == []


@pytest.mark.parametrize("version", [1, 3])
def test_an_environment_without_a_record(tmp_path: Path, version: int) -> None:
    environment(tmp_path, version).close()
    index = Index.open(tmp_path)
    assert len(index) == 0
    assert list(index.keys()) == []
    assert index.find(b"a") is None
    assert index.txn == 0
    assert verify(tmp_path).faults == []


@pytest.mark.parametrize("version", [1, 3])
def test_a_writable_mapping_and_spilled_pages(tmp_path: Path, version: int) -> None:
    with lmdb.open(
        str(tmp_path), map_size=1 << 28, writemap=True, lib_version=ENGINES[version], sync=False
    ) as env:
        for turn in range(3):
            with env.begin(write=True) as txn:
                for i in range(20_000):
                    txn.put(b"%06d" % (i * 7919 % 20_000), b"%d" % turn * (i % 300))
        expected = by_lmdb(env, [])
        assert by_index(tmp_path) == expected  # the file is open, and larger than what it holds
    assert verify(tmp_path).faults == []


@pytest.mark.parametrize(
    ("version", "page_size"),
    [(1, s) for s in (256, 512, 1024, 8192, 32768)] + [(3, s) for s in (512, 2048, 16384, 65536)],
)
def test_any_page_size(tmp_path: Path, version: int, page_size: int) -> None:
    contents = [
        (b"key %05d" % i, bytes([i % 251]) * (i * 37 % (page_size * 2))) for i in range(700)
    ]
    data = Writer(version, page_size).file(contents)
    path = tmp_path / "other.mdb"
    path.write_bytes(data)
    assert records(Index.open(path), data) == contents
    assert scanned(path) == slow_parser.parse(data)
    report = verify(path)
    assert report.faults == []
    assert (report.page_size, report.version, report.lost) == (page_size, version, 0)


def test_files_of_lmdb_utils(tmp_path: Path) -> None:
    load = shutil.which("mdb_load")
    if load is None:
        pytest.skip("mdb_load (Debian's lmdb-utils) is not installed")
    contents = [(b"k%05d" % i, b"v" * (i * 13 % 9000)) for i in range(500)]
    head = b"VERSION=3\nformat=print\ntype=btree\nmapsize=67108864\nHEADER=END\n"
    dump = head + b"".join(b" %s\n %s\n" % pair for pair in contents) + b"DATA=END\n"
    for database in (None, b"train"):
        folder = tmp_path / str(database)
        folder.mkdir()
        options = ["-s", database.decode()] if database else []
        subprocess.run([load, *options, str(folder)], input=dump, check=True, timeout=60)
        index = Index.open(folder, database)
        assert records(index, (folder / "data.mdb").read_bytes()) == contents
        assert verify(folder).faults == []


def test_names(tmp_path: Path) -> None:
    with environment(tmp_path, 1) as env:
        env.open_db(b"train")
        env.open_db(b"test", dupsort=True)
    index = Index.open(tmp_path)
    assert (index.name, len(index), index.databases) == (None, 0, [b"test", b"train"])
    assert not Index.open(tmp_path, b"train").duplicates
    assert Index.open(tmp_path, b"test").duplicates
    with pytest.raises(UsageError, match="has no database 'valid'") as told:
        Index.open(tmp_path, b"valid")
    assert "'test', 'train'" in str(told.value.remedy)


def test_progress_can_end_it(tmp_path: Path) -> None:
    with environment(tmp_path, 1) as env:
        apply(env, [[("put", b"a", b"b")]])

    def tell(done: int, every: int) -> None:
        assert (done, every) == (1, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.open(tmp_path, tell=tell)
    assert len(Index.open(tmp_path)) == 1
