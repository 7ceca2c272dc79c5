"""A file read in every way, with real reading processes."""

from __future__ import annotations

import os
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched_jobs import cold

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.lmdb.experiments import session
from dltune.systems.lmdb.experiments.runs import PIECE, Readers, Task, records, ways
from dltune.systems.lmdb.experiments.session import experiment
from dltune.watch.files import storage
from dltune.watch.files.storage import cached, drop

PAGE = 4096


def quiet(_: str) -> None:
    """Nobody listens."""


@pytest.fixture
def descriptor(plain_file):
    opened = os.open(plain_file, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.fixture
def patient(monkeypatch):
    """Pages of requests that a busy disk has not answered yet cannot be dropped: they are waited
    for."""
    monkeypatch.setattr(storage, "PATIENCE", 120.0)
    monkeypatch.setattr(storage, "LOOKS", 60)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """12 MiB in records of 20 to 40 KB and some small ones."""
    folder = tmp_path_factory.mktemp("database")
    with lmdb.open(str(folder), map_size=1 << 28) as made, made.begin(write=True) as writing:
        for at in range(400):
            size = 100 if at % 10 == 0 else 20_000 + 50 * at
            writing.put(b"%08d" % at, os.urandom(size))
    return folder


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("method", ["mmap", "pread", "direct"])
@pytest.mark.parametrize("readers", [1, 3])
def test_readers_read_each_piece_once(plain_file, descriptor, method, readers):
    offsets = list(range(0, 4 << 20, 10_000))
    sizes = [9_000 + at % 7 for at in range(len(offsets))]
    drop(plain_file, descriptor)
    with Readers(plain_file, 3) as processes:
        outcomes = processes.run(Task(method, readers, offsets, sizes, 60.0))
    assert len(outcomes) == readers
    assert sum(outcome.bytes for outcome in outcomes) == sum(sizes)
    assert sum(outcome.records for outcome in outcomes) == len(offsets)
    for outcome in outcomes:
        assert 0 <= outcome.asleep <= 1
        assert outcome.seconds > 0


def test_readers_run_the_dltune_that_started_them(plain_file, tmp_path, monkeypatch):
    other = tmp_path / "dltune"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('another dltune')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Readers(plain_file, 1) as processes:
        (outcome,) = processes.run(Task("pread", 1, [0], [PAGE], 60.0))
    assert outcome.bytes == PAGE


@pytest.mark.usefixtures("patient")
def test_what_a_cold_reader_gets_comes_from_storage(plain_file, descriptor):
    assert drop(plain_file, descriptor)
    left = cached(descriptor).now  # up to a MiB
    offsets = list(range(0, 16 << 20, 1 << 20))
    with Readers(plain_file, 1) as processes:
        (first,) = processes.run(Task("pread", 1, offsets, [1 << 20] * 16, 60.0))
        (again,) = processes.run(Task("pread", 1, offsets, [1 << 20] * 16, 60.0))
    if first.storage == 0:
        pytest.skip("this file system is not counted")
    assert first.storage >= (16 << 20) - left
    assert again.storage == 0


def test_a_cursor_passes_what_is_not_its_own(plain_file):
    offsets = list(range(0, 4 << 20, 16 << 10))
    with Readers(plain_file, 4) as processes:
        outcomes = processes.run(Task("mmap", 4, offsets, [8192] * 256, 60.0, walk="cursor"))
        (seek,) = processes.run(
            Task("mmap", 1, offsets, [8192] * 256, 60.0, walk="cursor", passing=True)
        )
    assert [outcome.records for outcome in outcomes] == [64] * 4
    assert [outcome.passed for outcome in outcomes] == [192] * 4
    assert (seek.records, seek.passed, seek.bytes) == (0, 256, 0)


def test_a_run_is_bounded(plain_file):
    offsets = [0] * 3_000_000
    with Readers(plain_file, 1) as processes:
        (outcome,) = processes.run(Task("pread", 1, offsets, [PAGE] * len(offsets), 0.05))
    assert outcome.records < len(offsets)


def test_hints_change_no_result(plain_file):
    offsets = list(range(0, 8 << 20, 32 << 10))[::-1]
    with Readers(plain_file, 1) as processes:
        (outcome,) = processes.run(
            Task("mmap", 1, offsets, [20_000] * 256, 60.0, advised=True, ahead=16)
        )
    assert outcome.bytes == 256 * 20_000


def test_a_file_that_vanishes(plain_file):
    with Readers(plain_file, 1) as processes:
        plain_file.unlink()
        with pytest.raises(UsageError, match="was deleted while it was read"):
            processes.run(Task("pread", 1, [0], [PAGE], 1.0))


def test_a_file_that_becomes_shorter_under_a_mapping(plain_file):
    with Readers(plain_file, 1) as processes:
        offsets = [16 << 20] * 1_000_000
        os.truncate(plain_file, 8 << 20)
        with pytest.raises(UsageError, match="became shorter"):
            processes.run(Task("mmap", 1, offsets, [PAGE] * len(offsets), 60.0))


def test_what_another_process_has_mapped_cannot_be_read_cold(plain_file, descriptor, started):
    started(
        "import mmap, os, sys, time\n"
        "m = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)\n"
        "sum(m[at] for at in range(0, len(m), 4096))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)",
        plain_file,
    )
    with pytest.raises(
        UsageError, match=r"cannot be read cold: 32 MiB of it stay in the page cache"
    ):
        drop(plain_file, descriptor)


def test_records_of_lmdb_are_those_of_its_index(database):
    path = database / "data.mdb"
    opened = os.open(path, os.O_RDONLY)
    found = records(path, opened, "lmdb", 1 << 30)
    with lmdb.open(str(database), readonly=True, lock=False) as env, env.begin() as reading:
        values = [value for _, value in reading.cursor()]
    assert [os.pread(opened, s, o) for o, s in zip(found.offsets, found.sizes, strict=True)] == (
        values
    )
    part = found.window(1 << 20)
    assert sum(part.sizes) >= 1 << 20
    assert sum(part.sizes[:-1]) < 1 << 20
    os.close(opened)


def test_rows_of_numpy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(100 * 5000, dtype=np.float32).reshape(100, 5000))
    opened = os.open(path, os.O_RDONLY)
    found = records(path, opened, "npy", 1 << 30)
    assert set(found.sizes) == {20_000}
    row = np.frombuffer(os.pread(opened, found.sizes[7], found.offsets[7]), dtype=np.float32)
    assert row[0] == 7 * 5000
    path.unlink()
    assert set(records(path, opened, "npy", 1 << 30).sizes) == {PIECE}
    os.close(opened)


def test_other_files_have_equal_pieces(plain_file, descriptor):
    found = records(plain_file, descriptor, "other", 1 << 30)
    assert set(found.sizes) == {PIECE}
    assert len(found.offsets) == (32 << 20) // PIECE


@given(
    sizes=st.lists(st.integers(1, 30_000), min_size=8, max_size=60),
    readers=st.integers(1, 5),
    cursor=st.booleans(),
)
def test_extra_pages_against_counting_touches(sizes, readers, cursor):
    """The slow way: every byte that a reader touches, by page."""
    offsets = [sum(sizes[:at]) + 64 for at in range(len(sizes))]
    task = Task("mmap", readers, offsets, sizes, 1.0, walk="cursor" if cursor else "offsets")
    extra = 0
    for rank in range(readers):
        own, touched = set(), set()
        for at, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            if at % readers == rank:
                own |= {byte // PAGE for byte in range(offset, offset + size)}
            elif cursor:
                touched.add(offset // PAGE)
        extra += len(touched - own)
    assert session.extra_bytes(task) == pytest.approx(extra * PAGE / sum(sizes))


def test_every_way_has_its_own_name(database):
    opened = os.open(database / "data.mdb", os.O_RDONLY)
    found = records(database / "data.mdb", opened, "lmdb", 1 << 30)
    os.close(opened)
    compared = ways(found, 12 << 20, [1, 2], seconds=1.0, hint_step=PAGE, cursor=True, direct=True)
    assert len({way.kind for way in compared}) == len(compared)
    for way in compared:
        assert max(o + s for o, s in zip(way.task.offsets, way.task.sizes, strict=True)) <= 16 << 20


@pytest.mark.usefixtures("patient")
def test_a_database_in_every_way(database):
    cold(database / "data.mdb")
    told: list[str] = []
    # seconds for each way, of which it takes a hundredth to read all
    document = experiment(database, [1, 2], 300.0, say=told.append, tell=quiet)
    assert struct_faults("", document) == []
    found = document.experiment
    assert found is not None
    assert told[0].endswith(" s in total")  # how long it will take is said first
    assert (found.format, found.readers, found.repeats) == ("lmdb", (1, 2), 3)
    cursor = {run.readers: run for run in found.strided if run.walk == "cursor"}
    assert set(cursor) == {1, 2}
    assert cursor[1].extra == 0 < cursor[2].extra
    assert {block.method for block in found.blocks} >= {"mmap", "pread"}
    assert found.seek is not None
    assert found.seek.passed == found.records
    assert len(found.shuffled) == 4
    assert all(run.throughput.samples == 3 for run in found.strided)
    assert found.share_of_ceiling > 0
    assert document.findings


@pytest.mark.usefixtures("patient")
def test_a_plain_file_gets_what_makes_sense(plain_file):
    document = experiment(plain_file, [1, 2], 6.0, say=quiet, tell=quiet)
    assert struct_faults("", document) == []
    found = document.experiment
    assert found is not None
    assert found.seek is None
    assert {run.walk for run in found.strided} == {"offsets"}


def bad(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "empty").touch()
    (tmp_path / "small").write_bytes(bytes(1000))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "damaged").write_bytes(
        bytes(16) + (0xBEEFC0DE).to_bytes(4, "little") + bytes(1 << 21)
    )
    return {
        "is empty": tmp_path / "empty",
        "has only 1000 B": tmp_path / "small",
        "is not a regular file": tmp_path / "pipe",
        "is a folder": tmp_path,
        "No such file": tmp_path / "missing",
        "damaged": tmp_path / "damaged",
    }


@pytest.mark.parametrize(
    "sentence",
    ["is empty", "has only 1000 B", "is not a regular file", "is a folder", "No such file"],
)
def test_what_cannot_be_measured(tmp_path, sentence):
    with pytest.raises(UsageError, match=sentence):
        experiment(bad(tmp_path)[sentence], [1], 2.0, say=quiet, tell=quiet)


def test_a_damaged_database(tmp_path):
    with pytest.raises(UsageError):
        experiment(bad(tmp_path)["damaged"], [1], 2.0, say=quiet, tell=quiet)


@pytest.mark.usefixtures("patient")
def test_a_file_that_vanishes_meanwhile(plain_file):
    with pytest.raises(UsageError, match="was deleted while it was read"):
        # what is said comes before the rounds of reading
        experiment(plain_file, [1], 30.0, say=lambda _: plain_file.unlink(), tell=quiet)
