"""Strided sharding and shuffling, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.options import PAGE, Sequential, Share, Shuffled, layout

sizes = st.integers(1, 9)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """Ranks, batch, and a run that divides it or that it divides."""
    one, times = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    batch, run = draw(st.sampled_from([(one * times, one), (one, one * times)]))
    return draw(sizes), batch, run


@given(shapes(), st.integers(0, 5), st.integers(1, 4))
def test_all_ranks_together_take_consecutive_numbers(
    shape: tuple[int, int, int], first: int, iterations: int
) -> None:
    """In each iteration, or with longer runs in as many as a run lasts."""
    size, batch, run = shape
    shares = [Share(rank, size, batch, run) for rank in range(size)]
    period = shares[0].period
    assert period == max(1, run // batch)
    taken = [share.numbers(first * period, iterations * period) for share in shares]
    for at in range(iterations):
        of_period = [rank[at * period : (at + 1) * period].reshape(-1) for rank in taken]
        start = (first + at) * size * batch * period
        assert sorted(np.concatenate(of_period)) == [*range(start, start + size * batch * period)]
        # each rank its runs in the order of the file, the ranks in turn
        ranks = np.concatenate([one.reshape(-1, run) for one in of_period], axis=1).reshape(-1)
        assert ranks.tolist() == [*range(start, start + size * batch * period)]


@given(shapes(), st.integers(0, 5), st.integers(1, 9))
def test_iterations_are_the_same_however_many_are_asked_for(
    shape: tuple[int, int, int], first: int, iterations: int
) -> None:
    size, batch, run = shape
    share = Share(size - 1, size, batch, run)
    every = share.numbers(0, first + iterations)
    assert share.numbers(first, iterations).tolist() == every[first:].tolist()


@given(shapes(), st.integers(1, 500))
def test_an_epoch_is_as_many_iterations_as_give_every_record(
    shape: tuple[int, int, int], records: int
) -> None:
    size, batch, run = shape
    shares = [Share(rank, size, batch, run) for rank in range(size)]
    iterations = shares[0].per_epoch(records)
    had = {n for share in shares for n in share.numbers(0, iterations).reshape(-1).tolist()}
    assert had >= set(range(records))
    before = iterations - shares[0].period
    had = {n for share in shares for n in share.numbers(0, before).reshape(-1).tolist()}
    assert not had >= set(range(records))


def test_runs_of_several_iterations_make_requests_of_16_mib_on_256_nodes() -> None:
    """The thesis' largest strong scaling (chapter 5.3): 18,432 samples over 256 nodes of 36 ranks,
    here of 4 KiB each. Batch by batch a node's part of an iteration is 288 KiB."""

    def requests(run: int) -> list[int]:
        shares = [Share(rank, 256 * 36, 2, run) for rank in range(7 * 36, 8 * 36)]
        numbers = np.concatenate([share.numbers(0, 224).reshape(-1) for share in shares])
        sizes = np.full(len(numbers), PAGE, np.uint32)
        found = layout(numbers.astype(np.uint64) * PAGE, sizes, 16 << 20, 64 << 10)
        return found.pieces[:, 1].tolist()

    assert requests(2) == [288 << 10] * 224
    assert requests(2 * 56) == [36 * 2 * 56 * PAGE] * 4  # 15.75 MiB each
    assert requests(2 * 112) == [16 << 20, (16 << 20) - (512 << 10)] * 2


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
    "shape", [(0, 1, 0, 1), (2, 2, 1, 1), (-1, 2, 1, 1), (0, 1, 4, 3), (0, 1, 4, 0), (0, 1, 4, 6)]
)
def test_what_cannot_be_is_refused(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError):
        Share(*shape)
