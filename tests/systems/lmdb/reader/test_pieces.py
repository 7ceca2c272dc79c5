"""Layouts of records in memory, against reading each record by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dltune.systems.lmdb.reader.options import PAGE, layout

FILE = np.random.default_rng(0).integers(0, 256, 40 * PAGE + 123, dtype=np.uint8).tobytes()
records = st.lists(
    st.integers(0, len(FILE) - 1).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(0, min(3 * PAGE, len(FILE) - start)))
    ),
    min_size=1,
    max_size=30,
)


@given(records, st.integers(1, 4), st.integers(0, 3 * PAGE))
def test_every_record_lies_where_it_is_told(
    wanted: list[tuple[int, int]], pages: int, gap: int
) -> None:
    offsets = np.array([start for start, _ in wanted], np.uint64)
    sizes = np.array([size for _, size in wanted], np.uint32)
    found = layout(offsets, sizes, pages * PAGE, gap)
    memory = bytearray(found.size)
    for offset, length, needed, place in found.pieces.tolist():
        assert offset % PAGE == length % PAGE == place % PAGE == 0
        assert 0 < length <= pages * PAGE
        there = FILE[offset : offset + length]
        assert len(there) >= needed
        memory[place : place + len(there)] = there
    for (start, size), place in zip(wanted, found.places.tolist(), strict=True):
        assert memory[place : place + size] == FILE[start : start + size]


@given(records, st.integers(0, 3 * PAGE))
def test_no_byte_is_read_twice_and_no_larger_gap_along(
    wanted: list[tuple[int, int]], gap: int
) -> None:
    offsets = np.array([start for start, _ in wanted], np.uint64)
    sizes = np.array([size for _, size in wanted], np.uint32)
    found = layout(offsets, sizes, PAGE, gap)
    read = [page for offset, *_ in found.pieces.tolist() for page in (offset // PAGE,)]
    assert len(read) == len(set(read))
    used = {p for start, size in wanted for p in range(start // PAGE, -(-(start + size) // PAGE))}
    used |= {start // PAGE for start, _ in wanted}
    assert used <= set(read)
    for page in set(read) - used:
        before = max(p for p in used if p < page)
        after = min(p for p in used if p > page)
        assert (after - before - 1) * PAGE <= gap


def test_neighbours_are_one_request() -> None:
    """Records of 3 pages, as LMDB lays them on overflow pages, each behind a header of 16 bytes."""
    offsets = np.arange(100, dtype=np.uint64) * 3 * PAGE + 16
    sizes = np.full(100, 3 * PAGE - 16, np.uint32)
    assert len(layout(offsets, sizes, 1 << 30, 0).pieces) == 1
    assert len(layout(offsets[::2], sizes[::2], 1 << 30, 0).pieces) == 50
    assert len(layout(offsets[::2], sizes[::2], 1 << 30, 3 * PAGE).pieces) == 1
