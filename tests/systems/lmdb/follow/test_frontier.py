"""Where a job reads, told from outside it."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.systems.lmdb import follow
from dltune.systems.lmdb.follow import DENSE, NEAR, PAGE, PATIENCE, Frontiers, foremost


@given(st.lists(st.booleans(), max_size=300))
def test_the_foremost_page_by_its_definition(touched: list[bool]) -> None:
    def dense(at: int) -> bool:
        return touched[at] and sum(touched[max(0, at - NEAR) : at + 1]) >= DENSE

    expected = max((at + 1 for at in range(len(touched)) if dense(at)), default=None)
    assert foremost(np.array(touched, bool)) == expected


def test_a_page_of_the_tree_is_no_reading() -> None:
    touched = np.zeros(1000, bool)
    touched[:100] = True
    touched[800:816] = True  # a fault far ahead, and what it mapped around
    assert foremost(touched) == 100


def test_a_mapping_that_is_read_on_and_one_that_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(4000 * PAGE))
    status = path.stat()
    frontiers = Frontiers(status.st_dev, status.st_ino, status.st_size)
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

        def touch(first: int, last: int) -> None:
            for page in range(first, last):
                assert mapping[page * PAGE] == 0

        touch(0, 100)
        frontiers.survey({os.getpid()})
        seen = frontiers.look()
        # a fault maps up to 16 pages, or a large folio of 2 MiB: those behind it too
        assert max(seen) // PAGE in range(100, 613)
        assert max(frontiers.look(), default=0) == 0
        touch(100, 1000)
        assert max(frontiers.look()) // PAGE in range(1000, 1513)
        mapping.close()
    frontiers.survey({os.getpid()})
    assert frontiers.look() == []


def test_a_mapping_longer_than_its_file_that_is_read_from_the_middle_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LMDB's are; all of it is looked at in parts, and what is seen once is known."""
    monkeypatch.setattr(follow, "PART", 512)
    path = tmp_path / "data"
    path.write_bytes(bytes(40_000 * PAGE))
    status = path.stat()
    frontiers = Frontiers(status.st_dev, status.st_ino, status.st_size)
    with open(path, "rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        length = 1 << 40
        start = libc.mmap(None, ctypes.c_size_t(length), 1, 1, file.fileno(), ctypes.c_long(0))
        for page in range(20_000, 20_200):  # behind the window of the first look
            assert ctypes.string_at(start + page * PAGE, 1) == b"\0"
        frontiers.survey({os.getpid()})
        (mapping,) = frontiers._mappings.values()
        assert mapping.pages == 40_000
        seen = [front for _ in range(200) for front in frontiers.look()]
        assert max(seen) // PAGE in range(20_200, 20_713)
        assert [front for _ in range(400) for front in frontiers.look()] == []
        libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(length))


def test_of_a_process_that_has_ended_nothing_more_is_seen(tmp_path: Path) -> None:
    """Until it is missed, it is looked at, and has no pages any more."""
    path = tmp_path / "data"
    path.write_bytes(bytes(4000 * PAGE))
    status = path.stat()
    frontiers = Frontiers(status.st_dev, status.st_ino, status.st_size)
    maps = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "print(mapping[0], flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", maps, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        frontiers.survey({process.pid})
        for _ in range(2 * PATIENCE):
            frontiers.look()
        process.communicate()
        assert [front for _ in range(2 * PATIENCE) for front in frontiers.look()] == []


def test_a_descriptor_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(100_000))
    status = path.stat()
    frontiers = Frontiers(status.st_dev, status.st_ino, status.st_size)
    with open(path, "rb", buffering=0) as file:
        frontiers.survey({os.getpid()})
        assert frontiers.look() == []
        file.read(70_000)
        assert frontiers.look() == [70_000]
