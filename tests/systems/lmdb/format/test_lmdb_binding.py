"""What `verify` finds, and that it finds nothing in what LMDB itself calls sound."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb.verify
import pytest
import slow_parser
from made import environment
from slow_parser import with_number
from writer import Writer

from dltune.systems.lmdb.format.lmdb_binding import verify


def faults(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return "\n".join(verify(path).faults)


@pytest.mark.parametrize("version", [1, 3])
def test_faults_that_no_reader_meets(tmp_path: Path, version: int) -> None:
    path = tmp_path / "data.mdb"
    records = [(b"%03d" % i, b"v" * (i * 40 % 3000)) for i in range(200)]
    data = Writer(version, 1024).file(records)
    file = slow_parser.File(data)
    root = file.u(8, file.meta + 72 + 40) * 1024
    second = file.u(6, file.nodes(root)[1]) * 1024
    assert faults(path, data) == ""

    key = file.nodes(second)[1] + 8
    told = faults(path, with_number(data, key, 1, 0x7A))
    assert f"the main database, page {second // 1024}: its keys are out" in told
    key = file.nodes(root)[2] + 8
    told = faults(path, with_number(data, key, 3, int.from_bytes(b"000", "little")))
    assert f"the main database, page {root // 1024}: its keys are out of order" in told
    key = file.nodes(root)[2] + 8
    bound = file.u(3, key).to_bytes(3, "little")
    lower = b"%03d" % (int(bound) - 1)
    told = faults(path, with_number(data, key, 3, int.from_bytes(lower, "little")))
    assert "its keys are outside the bounds that its parent sets" in told

    leaves = [file.u(6, node) * 1024 for node in file.nodes(root)]
    big = next(n for leaf in leaves for n in file.nodes(leaf) if file.u(2, n + 4) == 1)
    page = file.u(8, big + 8 + (3 if version == 1 else 4)) * 1024
    told = faults(path, with_number(data, page, 8, 1))
    assert f"overflow page {page // 1024} holds another page's number" in told
    told = faults(path, with_number(data, page + file.header - 6, 2, 2))
    assert f"overflow page {page // 1024} is not an overflow page" in told
    told = faults(path, with_number(data, page + file.header - 4, 4, 0))
    assert f"overflow page {page // 1024} starts a run that is too short" in told

    for at, what in ((8, "branch pages"), (16, "leaf pages"), (24, "overflow pages")):
        told = faults(path, with_number(data, file.meta + 72 + at, 8, 9999))
        assert f"{what} where its header says 9999" in told
    told = faults(path, with_number(data, file.meta + 72 + 4, 2, 0x10))
    assert "its flags allow duplicates that it cannot have" in told


@pytest.mark.parametrize("version", [1, 3])
def test_lost_pages_are_counted(tmp_path: Path, version: int) -> None:
    data = Writer(version, 512).file([(b"a", b"b")])
    last = slow_parser.File(data).meta + 120
    path = tmp_path / "data.mdb"
    path.write_bytes(with_number(data, last, 8, 12) + bytes(512 * 10))
    report = verify(path)
    assert report.faults == []
    assert (report.used, report.free, report.lost) == (1, 0, 10)


@pytest.mark.parametrize("version", [1, 3])
def test_a_free_page_that_is_in_use(tmp_path: Path, version: int) -> None:
    with environment(tmp_path, version) as env:
        for turn in range(4):
            with env.begin(write=True) as txn:
                for i in range(50):
                    txn.put(b"%d" % i, b"%d" % turn * 3000)
    path = tmp_path / "data.mdb"
    report = verify(path)
    assert report.faults == []
    assert report.free > 0
    assert report.lost == 0
    data = path.read_bytes()
    file = slow_parser.File(data)
    (_, at, _), *_ = file.tree(file.meta + 24)[0]
    used = slow_parser.parse(data)[None][0][1] // 4096
    told = faults(path, with_number(data, at + 8, 8, used))
    assert "two places" in told or "out of order" in told


@pytest.mark.parametrize("version", [1, 3])
def test_it_agrees_with_py_lmdbs_own_verifier(tmp_path: Path, version: int) -> None:
    """What theirs finds in changed headers, this one finds too, with one exception."""
    with environment(tmp_path, version) as env:
        dup = env.open_db(b"dup", dupsort=True)
        for turn in range(3):
            with env.begin(write=True) as txn:
                for i in range(80):
                    txn.put(b"%04d" % i, b"%d" % turn * (i * 53))
                    txn.put(b"many" if i % 3 else b"few", b"%d" % (i * turn) * 9, db=dup)
    path = tmp_path / "data.mdb"
    data = path.read_bytes()
    assert lmdb.verify.verify(str(path)) == []
    assert verify(path).faults == []
    rng = random.Random(7)
    places = [at for field in slow_parser.headers(data) for at in field]
    missed = []
    for _ in range(300):
        at, bit = rng.choice(places), 1 << rng.randrange(8)
        path.write_bytes(with_number(data, at, 1, data[at] ^ bit))
        if not _theirs(path):
            continue
        if _ours(path):
            continue
        missed.append(at)
    path.write_bytes(data)
    # theirs refuses a longer run of overflow pages than its record needs, which LMDB itself makes
    # of a record that gets smaller in the transaction that wrote it
    assert len(missed) < 4, missed


def _theirs(path: Path) -> bool:
    try:
        return bool(lmdb.verify.verify(str(path)))
    except (lmdb.verify.VerifyError, IndexError, ValueError):
        return True


def _ours(path: Path) -> bool:
    from dltune.base.errors import UsageError

    try:
        return bool(verify(path).faults)
    except UsageError:
        return True
