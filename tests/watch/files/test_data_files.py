"""Data files of a process, and what of them came from storage."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from watched_jobs import cold

from dltune.watch.files import storage
from dltune.watch.files.data_files import DataFiles


@pytest.mark.parametrize("source", ["cachestat", "mincore"])
def test_what_is_dropped_and_read_again_came_twice(plain_file, monkeypatch, source):
    """A job that drops its file for each epoch leaves less in the page cache than it found."""
    if source == "mincore":
        monkeypatch.setattr(storage, "_CACHESTAT", 100_000)
    size = plain_file.stat().st_size
    with closing(DataFiles()) as files, open(plain_file, "rb") as job:
        assert job.fileno() in {one.descriptor for one in files.opened(os.getpid())}
        (known,) = files.known.values()
        cold(plain_file)
        known.look()
        before = known.came
        assert before is not None
        for epoch in (1, 2):
            assert len(os.pread(job.fileno(), size, 0)) == size
            known.look()
            assert known.came == before + epoch * size
            cold(plain_file)
            known.look()
            assert known.came == before + epoch * size
