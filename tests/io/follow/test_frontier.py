"""Where a job reads, told from outside it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dltune.io.follow.frontier import DENSE, NEAR, PAGE, Frontiers, foremost


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
    frontiers = Frontiers(status.st_dev, status.st_ino)
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


def test_a_descriptor_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(100_000))
    status = path.stat()
    frontiers = Frontiers(status.st_dev, status.st_ino)
    with open(path, "rb", buffering=0) as file:
        frontiers.survey({os.getpid()})
        assert frontiers.look() == []
        file.read(70_000)
        assert frontiers.look() == [70_000]
