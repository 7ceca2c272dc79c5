"""Pages of a file in the page cache."""

from __future__ import annotations

import os

import pytest
from watched_jobs import cold

from dltune.watch.files import storage
from dltune.watch.files.storage import PAGE, resident_pages


@pytest.fixture
def opened(plain_file):
    descriptor = os.open(plain_file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no more than what is asked for
    yield descriptor
    os.close(descriptor)


def test_both_sources_count_the_pages_that_were_read(opened, plain_file):
    cold(plain_file)
    before = resident_pages(opened)
    assert before is not None
    assert sum(before) == 0
    os.pread(opened, 10 * PAGE, 5 * PAGE)
    pages = resident_pages(opened)
    assert pages is not None
    assert len(pages) == (32 << 20) // PAGE
    assert [at for at, there in enumerate(pages) if there] == list(range(5, 15))
    told = storage.cached(opened)
    assert told is not None
    assert told.now == 10 * PAGE <= told.seen


def test_a_kernel_without_cachestat(opened, plain_file, monkeypatch):
    cold(plain_file)
    os.pread(opened, 10 * PAGE, 0)
    monkeypatch.setattr(storage, "_CACHESTAT", 100_000)
    told = storage.cached(opened)
    assert told is not None
    assert told.now == told.seen == 10 * PAGE


def test_mincore_is_not_believed_of_what_is_not_ones_own(opened, monkeypatch):
    monkeypatch.setattr(storage, "_CACHESTAT", 100_000)
    monkeypatch.setattr(storage, "_owned", lambda _: False)
    assert storage.cached(opened) is None


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    assert resident_pages(descriptor) == b""
    os.close(descriptor)
