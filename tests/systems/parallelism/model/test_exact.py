"""The best strategy there is, proven."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from parallelism_problems import every, problems

from dltune.systems.parallelism.inputs import p100
from dltune.systems.parallelism.model import search
from dltune.systems.parallelism.model.bound import COMBINED, NODES, fits, optimum
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import Problem, problem, roofline, soap
from dltune.systems.parallelism.networks import lenet, rnnlm

LIMIT = 3600.0  # seconds, of which each proof takes less than one where a machine is not busy


@settings(max_examples=80, deadline=None)
@given(problems())
def test_best_of_all(some: Problem) -> None:
    times = every(some)
    least = min(time for time, _ in times)
    for _, start in (times[0], times[-1]):
        found = optimum(some, start, LIMIT)
        assert found.proven
        assert found.time == least
        assert Engine(some).simulate(found.best) == least


@settings(max_examples=50, deadline=None)
@given(problems())
def test_groups_too_large_to_be_looked_at_together(some: Problem) -> None:
    times = every(some)
    proof = Engine(some).prove(times[0][1], 3, LIMIT, NODES)
    assert proof.time == proof.bound == min(time for time, _ in times)


@settings(max_examples=50, deadline=None)
@given(problems())
def test_what_is_known_need_not_be_a_strategy_at_hand(some: Problem) -> None:
    times = every(some)
    least = min(time for time, _ in times)
    for known in (least, least + 1):
        proof = Engine(some).prove(times[0][1], COMBINED, LIMIT, NODES, known)
        assert proof.time == proof.bound == least


@pytest.mark.parametrize("network", [lenet(), rnnlm(steps=2)], ids=lambda network: network.name)
def test_the_papers_small_cases(network) -> None:
    """Its section 8.4: on four devices; the paper took 0.8 and 18 hours."""
    given = problem(network, p100(4), soap, roofline)
    assert fits(given)
    from_sum = optimum(given, search.least_sum(given), LIMIT)
    from_samples = optimum(given, search.data_parallel(given), LIMIT)
    assert from_sum.proven
    assert from_samples.proven
    assert from_sum.time == from_samples.time
    assert Engine(given).simulate(from_sum.best) == from_sum.time


def test_a_search_that_is_ended_tells_what_is_open_still() -> None:
    given = problem(rnnlm(steps=2), p100(4), soap, roofline)
    start = search.data_parallel(given)
    best = optimum(given, start, LIMIT).time
    at_once = optimum(given, start, 0.0)
    assert not at_once.proven
    assert 0 < at_once.bound <= best < at_once.time
    few = Engine(given).prove(start, COMBINED, LIMIT, 1000)
    assert at_once.bound <= few.bound <= best
