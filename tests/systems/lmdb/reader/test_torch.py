"""PyTorch's DataLoader, where PyTorch is installed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path

import pytest
from making import made

from dltune.base.errors import UsageError
from dltune.systems.lmdb import Records


def test_records_are_pickled_by_their_path(tmp_path: Path) -> None:
    """As to a loader's workers."""
    contents = made(tmp_path, [100, 5000, 20])
    with Records(tmp_path) as records, pickle.loads(pickle.dumps(records)) as copy:
        assert copy.read([2, 0]) == [contents[2], contents[0]]


def test_forked_readers_do_not_share_what_they_read(tmp_path: Path) -> None:
    """Where all that they read has room in what their parent had."""
    contents = made(tmp_path, [(i * 977) % 9000 for i in range(60)])
    with Records(tmp_path) as records:
        assert len(records.read(range(60))) == 60

        def reads(first: int) -> None:
            own = range(first, first + 20)
            os._exit(any(records.read(own) != contents[first : first + 20] for _ in range(300)))

        forking = multiprocessing.get_context("fork")
        readers = [forking.Process(target=reads, args=(first,)) for first in (0, 20, 40)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout=120)
    assert [reader.exitcode for reader in readers] == [0, 0, 0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_shuffles_records(tmp_path: Path, workers: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    contents = made(tmp_path, [(i * 977) % 9000 for i in range(50)])
    loader = data.DataLoader(
        Records(tmp_path), batch_size=8, shuffle=True, num_workers=workers, collate_fn=list
    )
    got = [tuple(record) for batch in loader for record in batch]
    assert got != contents
    assert sorted(got) == contents


def test_batches_come_in_the_readers_order(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")
    from dltune.systems.lmdb.reader.torch import Batches

    contents = made(tmp_path, [(i * 977) % 9000 for i in range(50)])
    batches = Batches(tmp_path, batch=7, iterations=9)
    got = list(data.DataLoader(batches, batch_size=None))
    assert len(got) == len(batches) == 9
    assert [tuple(r) for records in got for r in records] == [*contents, *contents[:13]]
    with pytest.raises(UsageError, match="in a DataLoader's worker"):
        list(data.DataLoader(batches, batch_size=None, num_workers=1))
