"""No strategy is faster than a bound."""

from __future__ import annotations

import os
from itertools import repeat
from random import Random

import pytest
from hypothesis import given, settings
from parallelism_problems import every, problems, random_problem

from dltune.native import solver
from dltune.systems.parallelism.model import bound as exact
from dltune.systems.parallelism.model import bound as linear
from dltune.systems.parallelism.model.bound import bound
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import Problem

LIMIT = 3600.0  # seconds, of which these take a few: no proof ends for want of time


@settings(max_examples=50, deadline=None)
@given(problems())
def test_no_strategy_is_faster(some: Problem) -> None:
    times = every(some)
    least = min(time for time, _ in times)
    assert 0 < bound(some, least, 0.0).value_ns <= least
    relaxed = Engine(some).prove(times[0][1], exact.COMBINED, 0.0, exact.NODES)
    assert relaxed.bound <= least


def test_no_strategy_is_faster_than_the_programme_says() -> None:
    some = [random_problem(Random(seed)) for seed in range(200)]
    programmes = [linear.linear_programme(Engine(one)) for one in some]
    solved = map(linear.solve, programmes, repeat(LIMIT))
    values = solver.run(list, solved, limit=LIMIT)
    for problem, programme, value in zip(some, programmes, values, strict=True):
        assert linear.quick(programme) <= value + 1
        assert value <= min(time for time, _ in every(problem))


def test_small_problems_are_closed() -> None:
    for seed in range(6):
        some = random_problem(Random(seed))
        least = min(time for time, _ in every(some))
        found = bound(some, 2 * least, LIMIT)
        assert found.value_ns == least
        assert found.failure is None


def test_without_a_solver_branch_and_bound_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "installed", lambda: False)
    some = random_problem(Random(3))
    least = min(time for time, _ in every(some))
    assert bound(some, least, LIMIT).value_ns == least


def test_without_room_for_tables_the_rest_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MOST_BYTES", 0)
    some = random_problem(Random(11))
    least = min(time for time, _ in every(some))
    found = bound(some, least, LIMIT)
    assert 0 < found.value_ns <= least
    assert found.proven_by != "branch and bound"
    with pytest.raises(ValueError, match="too many pairs"):
        exact.optimum(some, every(some)[0][1], 1.0)


def test_a_solver_that_fails_leaves_the_rest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "solve", os.abort)  # which takes no arguments
    some = random_problem(Random(11))
    least = min(time for time, _ in every(some))
    found = bound(some, 2 * least, LIMIT)
    assert found.value_ns == least
    assert found.failure is not None
    assert found.failure.startswith("the solver failed: TypeError")
