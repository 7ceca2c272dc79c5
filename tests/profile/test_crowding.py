from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.job.messages import Execution
from dltune.profile.crowding import LEAST_PAIRS, PAIRS, Crowding

ALONE, BESIDE = 3, 4
MS = 1_000_000


def step(version: int, ops: list[tuple[int, int]], number: int = 0) -> Execution:
    """Ops as (start, end) in ms; every one on one thread, each a node of its own."""
    events = [(i, i, 1, 0, start * MS, end * MS, "1") for i, (start, end) in enumerate(ops)]
    return Execution(0, number, version, 0, 0, 0, 0, events)


def told(alone: list[tuple[int, int]], beside: list[tuple[int, int]], pairs: int) -> Crowding:
    crowding = Crowding(ALONE, BESIDE)
    for number in range(2 * pairs + 2):
        version = BESIDE if number % 2 else ALONE
        crowding.add(step(version, beside if version == BESIDE else alone, number))
    return crowding


def test_two_ops_that_lose_a_quarter_to_each_other() -> None:
    """As in Table III's third row: what takes 100 alone takes 125 beside the other."""
    crowding = told([(0, 100), (100, 200)], [(0, 125), (0, 125)], PAIRS)
    assert crowding.known
    assert crowding.factor() == pytest.approx(1.25)


def test_what_runs_alone_has_no_part_in_it() -> None:
    alone = [(0, 100), (100, 200), (200, 700)]
    beside = [(0, 125), (0, 125), (125, 625)]
    assert told(alone, beside, PAIRS).factor() == pytest.approx(1.25)


def test_half_beside_is_half_the_loss() -> None:
    # of the first op's 220 ms, 120 are beside the second
    crowding = told([(0, 200), (200, 300)], [(0, 220), (100, 220)], PAIRS)
    found = crowding.factor()
    assert found is not None
    assert found == pytest.approx(1 + 40 / (200 * 120 / 220 + 100))


def test_nothing_side_by_side_tells_nothing() -> None:
    assert told([(0, 100), (100, 200)], [(0, 100), (100, 200)], PAIRS).factor() is None


def test_a_gain_is_noise() -> None:
    assert told([(0, 100), (100, 200)], [(0, 90), (0, 90)], PAIRS).factor() == 1.0


def test_too_few_pairs_tell_nothing() -> None:
    crowding = told([(0, 100), (100, 200)], [(0, 125), (0, 125)], LEAST_PAIRS - 1)
    assert crowding.factor() is None
    assert not crowding.known


@given(
    st.lists(st.integers(1, 1000), min_size=2, max_size=12),
    st.floats(1.0, 2.0),
)
def test_ops_that_all_start_together_give_the_factor_back(seconds: list[int], loss: float) -> None:
    """Equal ops end together; of unequal ones the longest is alone in the end."""
    same = [max(seconds)] * len(seconds)
    now, alone = 0, []
    for each in same:
        alone.append((now, now + each))
        now += each
    crowded = round(same[0] * loss * 1000)
    beside = [(0, crowded)] * len(same)
    crowding = Crowding(ALONE, BESIDE)
    for number in range(2 * PAIRS + 2):
        ops = beside if number % 2 else [(a * 1000, b * 1000) for a, b in alone]
        crowding.add(step(BESIDE if number % 2 else ALONE, ops, number))
    assert crowding.factor() == pytest.approx(loss, rel=2e-3)
