from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import execution

from dltune.job.protocol import Execution
from dltune.profile.climb import LEAST_PAIRS, PAIRS, Turns

BASE, OTHER = 7, 8


def steps(walls: list[float], first: int = 0) -> list[Execution]:
    """Executions that take turns, those under BASE first, with these times from start to start."""
    now, found = 0.0, []
    for number, wall in enumerate([*walls, 0.0]):
        version = OTHER if number % 2 else BASE
        found.append(execution(0, round(now * 1e9), [], number=first + number, version=version))
        now += wall
    return found


def told(walls: list[float]) -> Turns:
    turns = Turns(BASE, OTHER)
    for step in steps(walls):
        turns.add(step)
    return turns


def test_the_ratio_is_that_of_neighbours_and_the_first_two_do_not_count() -> None:
    turns = told([9.0, 1.0, *[2.0, 2.2] * 6])
    found = turns.ratio()
    assert found is not None
    assert found.median == pytest.approx(1.1)
    assert found.pairs == 6


def test_a_drift_that_both_see_cancels() -> None:
    turns = told([1.0, 1.0, *[wall * (1 + i) for i in range(12) for wall in (1.0, 1.05)]])
    found = turns.ratio()
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(1.05), pytest.approx(1.05))
    assert turns.known


def test_too_few_pairs_are_no_ratio() -> None:
    turns = told([1.0, 1.0, *[1.0, 1.0] * (LEAST_PAIRS - 1)])
    assert turns.ratio() is None
    assert not turns.known


def test_steps_under_other_orders_and_lost_ones_do_not_count() -> None:
    turns = Turns(BASE, OTHER)
    for step in steps([1.0] * 40):
        if step.number % 3 == 0:
            continue  # was lost: the pause to the next is no step
        turns.add(step)
    turns.add(execution(0, 0, [], number=99, version=BASE - 1))
    found = turns.ratio()
    assert found is None or found.median == pytest.approx(1.0)


@given(st.lists(st.floats(0.01, 10), min_size=2 * PAIRS + 3, max_size=60))
def test_the_interval_holds_the_median(walls: list[float]) -> None:
    found = told(walls).ratio()
    assert found is not None
    assert found.low <= found.median <= found.high
