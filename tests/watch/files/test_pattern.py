"""Sequential, strided, shuffled: on series that are known to be one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.watch.files.accesses import classify, classify_sampled

PAGE, AROUND = 4096, 64 << 10


def pages(start: int, end: int, step: int = PAGE) -> list[tuple[int, int]]:
    """Faults of a reader from `start` to `end`, one each `step` bytes."""
    return [(at, PAGE) for at in range(start // PAGE * PAGE, end, step)]


def records(order: list[int], size: int, step: int = PAGE) -> list[tuple[int, int]]:
    return [fault for at in order for fault in pages(at * size, at * size + size, step)]


@pytest.mark.parametrize("step", [PAGE, AROUND])
def test_front_to_back(step):
    assert classify([pages(0, 64 << 20, step)], AROUND).kind == "sequential"


@pytest.mark.parametrize("size", [192 << 10, 1 << 20])
@pytest.mark.parametrize("readers", [2, 8, 64])
def test_every_nth_record(size, readers):
    found = classify([records(list(range(3, 100 * readers, readers)), size, AROUND)], AROUND)
    assert found.kind == "strided"
    assert found.stride == size * readers


def test_small_strides_below_what_is_mapped_around_a_fault_are_sequential_for_the_storage():
    assert classify([records(list(range(0, 4000, 4)), 8192)], AROUND).kind == "sequential"


def test_strides_of_records_whose_sizes_vary():
    draw = random.Random(1)
    ends = [0]
    for _ in range(2000):
        ends.append(ends[-1] + draw.randrange(100_000, 300_000))
    series = [f for at in range(0, 2000, 8) for f in pages(ends[at], ends[at + 1], AROUND)]
    assert classify([series], AROUND).kind == "strided"


@pytest.mark.parametrize("size", [4096, 192 << 10, 4 << 20])
def test_shuffled_records(size):
    order = list(range(300))
    random.Random(2).shuffle(order)
    found = classify([records(order, size)], AROUND)
    assert found.kind == "shuffled"
    assert found.run == size


@pytest.mark.parametrize("seed", range(50))
def test_bursts_of_a_slow_shuffled_reader_are_taken_together(seed):
    """Each burst has four or five records of it: any one of them may go one way."""
    draw = random.Random(seed)
    bursts = [records([draw.randrange(1024) for _ in range(5)], 16384) for _ in range(12)]
    assert classify(bursts, AROUND).kind == "shuffled"


def test_bursts_of_a_slow_sequential_reader():
    whole = [*pages(0, 16 << 20), (0, PAGE), *pages(0, 8 << 20)]
    bursts = [whole[at : at + 40] for at in range(0, len(whole), 200)]
    assert classify(bursts, AROUND).kind == "sequential"


def test_epochs_begin_again_at_the_front():
    series = pages(0, 16 << 20, AROUND) * 5
    assert classify([series], AROUND).kind == "sequential"
    strided = records(list(range(0, 800, 8)), 192 << 10, AROUND) * 3
    assert classify([strided], AROUND).kind == "strided"


def test_epochs_with_a_look_at_the_header_between():
    series = []
    for _ in range(4):
        series += [(0, PAGE), (48 << 20, PAGE), *pages(1 << 20, 40 << 20, AROUND), (48 << 20, PAGE)]
    assert classify([series], AROUND).kind == "sequential"


def test_leaf_pages_now_and_then_do_not_hide_a_stride():
    series = []
    for at in range(0, 800, 8):
        series += pages(at * 200_000, at * 200_000 + 200_000, AROUND)
        if at % 80 == 0:
            series.append(((1 << 30) + at * PAGE, PAGE))
    assert classify([series], AROUND).kind == "strided"
    straight = [fault for at in range(0, 800, 10) for fault in ((at << 20, PAGE), (at << 10, PAGE))]
    assert classify([straight], AROUND).kind == "sequential"


def test_two_places_that_take_turns_are_no_shuffle():
    assert classify([[(0, PAGE), (1 << 30, PAGE)] * 50], AROUND).kind == "mixed"


def test_too_few_tell_nothing():
    assert classify([pages(0, 5 * PAGE)], AROUND).kind == "unknown"
    assert classify([], AROUND).kind == "unknown"
    assert classify_sampled([(0, 1)] * 50, 100).kind == "unknown"


SERIES = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 1 << 30)))


@given(st.lists(SERIES))
def test_any_series_has_an_answer(bursts):
    series = [access for burst in bursts for access in burst]
    for found in (classify(bursts, AROUND), classify_sampled(series, 1000)):
        assert found.kind in ("sequential", "strided", "shuffled", "mixed", "unknown")
        assert found.stride is None or found.stride > 0


def sampled(series: list[tuple[int, int]], seed: int) -> list[tuple[int, int]]:
    """About each tenth, as looks at random moments see them."""
    draw = random.Random(seed)
    return [access for access in series if draw.random() < 0.1]


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_a_sequential_reader(seed):
    calls = [(at, 256 << 10) for at in range(0, 512 << 20, 256 << 10)]
    seen = sampled(calls, seed)
    read = seen[-1][0] - seen[0][0]
    assert classify_sampled(seen, read).kind == "sequential"
    assert classify_sampled(seen, None).kind == "unknown"


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_a_strided_reader(seed):
    calls = [(at, 256 << 10) for at in range(0, 4 << 30, 2 << 20)]
    seen = sampled(calls, seed)
    found = classify_sampled(seen, (seen[-1][0] - seen[0][0]) // 8)
    assert found.kind == "strided"
    assert found.stride == pytest.approx(2 << 20, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_a_shuffled_reader(seed):
    calls = [(at, 64 << 10) for at in range(0, 512 << 20, 64 << 10)]
    random.Random(seed).shuffle(calls)
    assert classify_sampled(sampled(calls, seed), 1 << 20).kind == "shuffled"
