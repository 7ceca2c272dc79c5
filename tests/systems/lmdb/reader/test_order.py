"""Strided sharding and shuffling, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.options import Sequential, Share, Shuffled

sizes = st.integers(1, 9)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """Ranks, batch, and a run that divides it."""
    run = draw(st.integers(1, 4))
    return draw(sizes), run * draw(st.integers(1, 4)), run


@given(shapes(), st.integers(0, 5), st.integers(1, 4))
def test_all_ranks_together_take_consecutive_numbers(
    shape: tuple[int, int, int], first: int, iterations: int
) -> None:
    size, batch, run = shape
    taken = [Share(rank, size, batch, run).numbers(first, iterations) for rank in range(size)]
    for at in range(iterations):
        every = sorted(number for rank in taken for number in rank[at].tolist())
        start = (first + at) * size * batch
        assert every == list(range(start, start + size * batch))


@given(sizes, st.integers(1, 8))
def test_a_rank_takes_its_part_in_one_piece(size: int, batch: int) -> None:
    """Thesis, chapter 3.1.1: processes together access contiguous blocks, each a part of them."""
    for rank in range(size):
        start = (3 * size + rank) * batch
        mine = Share(rank, size, batch, batch).numbers(3, 1)
        assert mine.tolist() == [list(range(start, start + batch))]


@given(sizes, st.integers(1, 8))
def test_with_runs_of_one_it_takes_every_size_th_record_as_caffe(size: int, batch: int) -> None:
    """Caffe's data layer keeps a record when its number modulo the solvers is its rank."""
    for rank in range(size):
        mine = Share(rank, size, batch, 1).numbers(0, 3).reshape(-1).tolist()
        assert mine == [n for n in range(3 * size * batch) if n % size == rank]


@given(st.integers(1, 40), st.integers(0, 200), st.integers(1, 100))
def test_sequences_are_circular(records: int, first: int, count: int) -> None:
    numbers = np.arange(first, first + count)
    assert Sequential(records).positions(numbers).tolist() == [n % records for n in numbers]


@given(st.integers(1, 40), st.integers(0, 3), st.integers(0, 5))
def test_a_shuffled_epoch_has_every_record_once(records: int, seed: int, epoch: int) -> None:
    order = Shuffled(records, seed)
    numbers = np.arange(epoch * records, (epoch + 1) * records)
    assert sorted(order.positions(numbers).tolist()) == list(range(records))
    # however it is asked for
    one_by_one = [order.positions(np.array([n])).tolist()[0] for n in numbers[::-1]][::-1]
    assert one_by_one == Shuffled(records, seed).positions(numbers).tolist()


def test_epochs_and_seeds_differ() -> None:
    epoch = np.arange(1000)
    first = Shuffled(1000, 1).positions(epoch).tolist()
    assert first != Shuffled(1000, 1).positions(epoch + 1000).tolist()
    assert first != Shuffled(1000, 2).positions(epoch).tolist()


@pytest.mark.parametrize(
    "shape", [(0, 1, 0, 1), (2, 2, 1, 1), (-1, 2, 1, 1), (0, 1, 4, 3), (0, 1, 4, 0)]
)
def test_what_cannot_be_is_refused(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError):
        Share(*shape)
