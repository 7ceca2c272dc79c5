"""What a reader gives is what py-lmdb reads, in the order that the definition says."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
import time
from pathlib import Path

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making import Records as Contents
from making import made

from dltune.base.errors import UsageError
from dltune.systems.lmdb import Options, ReadAhead, Reader, Records
from dltune.systems.lmdb.reader.options import PAGE, Shuffled

# around the limits of inline records and of one, two and more overflow pages
SIZES = [0, 1, 100, 2030, 2040, 3000, 4080, 4081, 8176, 8177, 20_000, 70_000]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    folder = tmp_path_factory.mktemp("reader") / "db"
    return folder, made(folder, [SIZES[(i * 7) % len(SIZES)] for i in range(97)])


# the environment without a launcher is the same for all examples; this list takes the place of the
# suite's own
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

options = st.builds(
    Options,
    direct=st.booleans(),
    memory=st.integers(200, 600).map(lambda pages: pages * PAGE),
    block=st.integers(1, 40).map(lambda pages: pages * PAGE),
    gap=st.integers(0, 1 << 16),
    parallel=st.integers(1, 5),
    stagger=st.none() | st.integers(1, 2),
)


@settings(suppress_health_check=UNCHECKED)
@given(
    size=st.integers(1, 5),
    batch=st.integers(1, 6),
    run=st.sampled_from(["one", "batch", "three batches"]),
    shuffle=st.none() | st.integers(0, 3),
    first=st.integers(0, 30),
    chosen=options,
)
def test_every_rank_gets_its_records(
    stored: tuple[Path, Contents],
    size: int,
    batch: int,
    run: str,
    shuffle: int | None,
    first: int,
    chosen: Options,
) -> None:
    """Past the end of the database, too: circular, and always full blocks."""
    folder, contents = stored
    count = len(contents)
    together = size * batch * (3 if run == "three batches" else 1)
    iterations = 2 * count // (size * batch) + 2
    permutations = Shuffled(count, shuffle or 0)

    def record(number: int) -> tuple[bytes, bytes]:
        epoch, place = divmod(number, count)
        if shuffle is not None:
            place = int(permutations._permutation(epoch)[place])
        return contents[place]

    for rank in {0, size - 1}:
        with Reader(
            folder,
            batch=batch,
            shuffle=shuffle,
            run={"one": 1, "batch": None, "three batches": 3 * batch}[run],
            first=first,
            iterations=iterations,
            rank=rank,
            size=size,
            options=chosen,
        ) as reader:
            assert reader.per_epoch == -(-count // together) * together // (size * batch)
            got = list(reader)
        assert len(got) == iterations
        for at, records in enumerate(got, first):
            start = at * size * batch
            numbers = range(start + rank * batch, start + (rank + 1) * batch)
            if run == "one":
                numbers = range(start + rank, start + size * batch, size)
            if run == "three batches":
                start = at // 3 * together + (3 * rank + at % 3) * batch
                numbers = range(start, start + batch)
            assert records == [record(number) for number in numbers]


@settings(suppress_health_check=UNCHECKED)
@given(wanted=st.lists(st.integers(0, 96), max_size=40), chosen=options)
def test_records_at_any_positions(
    stored: tuple[Path, Contents], wanted: list[int], chosen: Options
) -> None:
    folder, contents = stored
    with Records(folder, options=chosen) as records:
        assert len(records) == len(contents)
        assert records.read(wanted) == [contents[at] for at in wanted]
        assert records[-1] == contents[-1]
        with pytest.raises(IndexError):
            records[97]


@settings(suppress_health_check=UNCHECKED)
@given(wanted=st.lists(st.integers(0, 96), max_size=200), ahead=st.integers(1, 1 << 20))
def test_hints_change_nothing(stored: tuple[Path, Contents], wanted: list[int], ahead: int) -> None:
    folder, contents = stored
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        keys = list(ReadAhead(folder, wanted, ahead=ahead).keys())
        assert [(key, txn.get(key)) for key in keys] == [contents[at] for at in wanted]


def test_hints_follow_an_endless_sampler(stored: tuple[Path, Contents]) -> None:
    hinted = ReadAhead(stored[0], itertools.cycle([3, 1]), ahead=1 << 16)
    assert list(itertools.islice(hinted, 5)) == [3, 1, 3, 1, 3]


def test_hints_bring_records_into_the_page_cache(tmp_path: Path) -> None:
    from dltune.watch.files.storage import cached

    made(tmp_path / "db", [200_000] * 20)
    with open(tmp_path / "db/data.mdb", "rb") as file:
        os.fsync(file.fileno())
        hinted = ReadAhead(tmp_path / "db", range(20), ahead=1 << 30)
        for _ in range(2400):  # pages that are still on their way stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = cached(file.fileno())
            assert before is not None
            if before.now < 1 << 20:
                break
            time.sleep(0.05)
        assert before.now < 1 << 20
        next(iter(hinted))
        for _ in range(2400):
            after = cached(file.fileno())
            assert after is not None
            if after.now >= 4_000_000:
                return
            time.sleep(0.05)
        raise AssertionError(f"only {after.now} bytes came")


def test_named_databases_and_duplicates(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=2) as env:
        db = env.open_db(b"train", dupsort=True)
        with env.begin(write=True, db=db) as txn:
            for number in range(50):
                txn.put(b"%d" % (number % 7), b"%d" % number)
        with env.begin(db=db) as txn:
            contents = [(bytes(k), bytes(v)) for k, v in txn.cursor()]
    with Reader(tmp_path, batch=10, database=b"train", iterations=5) as reader:
        assert [record for records in reader for record in records] == contents
    with (
        pytest.raises(UsageError, match="no database"),
        Reader(tmp_path, batch=1, database=b"test") as reader,
    ):
        next(reader)


def test_a_budget_that_is_too_small_is_told(stored: tuple[Path, Contents]) -> None:
    with Reader(stored[0], batch=40, options=Options(memory=64 << 10)) as reader:
        with pytest.raises(UsageError, match="one iteration") as caught:
            next(reader)
        least = int(str(caught.value.remedy).rpartition("=")[2])
    with Reader(stored[0], batch=40, options=Options(memory=least)) as reader:
        assert next(reader) == stored[1][:40]


def test_missing_empty_and_foreign_files_are_told(tmp_path: Path) -> None:
    with Reader(tmp_path / "none", batch=1) as reader, pytest.raises(UsageError, match="cannot"):
        next(reader)
    with lmdb.open(str(tmp_path)):
        pass
    with Reader(tmp_path, batch=1) as reader, pytest.raises(UsageError, match="no records"):
        next(reader)


def test_a_file_cut_short_is_told(tmp_path: Path) -> None:
    made(tmp_path, [50_000] * 10)
    with Reader(tmp_path, batch=1, options=Options(memory=1 << 18, gap=0)) as reader:
        next(reader)
        os.truncate(tmp_path / "data.mdb", 100_000)
        with pytest.raises(UsageError):
            list(itertools.islice(reader, 20))


def remains(path: Path) -> list[str]:
    """What a reader of the file still has: its thread, its memory, its descriptors."""
    found = [thread.name for thread in threading.enumerate() if thread.name == "dltune-io"]
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(descriptor)  # noqa: PTH115 - a memfd's is no path
            if "dltune-io" in target or target.startswith(str(path)):
                found.append(target)
    return found


def require_nothing_remains(path: Path) -> None:
    gc.collect()
    for _ in range(2400):
        if not remains(path):
            return
        time.sleep(0.05)
    raise AssertionError(remains(path))


def test_closing_ends_the_thread_and_frees_the_memory(stored: tuple[Path, Contents]) -> None:
    readers = [Reader(stored[0], batch=2) for _ in range(3)]
    for reader in readers:
        next(reader)
        assert remains(stored[0])
        reader.close()
        reader.close()
        assert list(reader) == []
    require_nothing_remains(stored[0])


def test_a_reader_dropped_without_closing_ends_too(stored: tuple[Path, Contents]) -> None:
    reader = Reader(stored[0], batch=2)
    next(reader)
    del reader
    require_nothing_remains(stored[0])


def test_jobs_import_nothing_they_do_not_need() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from dltune.systems.lmdb import Index, Options, ReadAhead, Reader, Records"
        "; heavy = {'click', 'rich', 'numpy', 'psutil', 'tensorflow', 'torch'}"
        "; assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
