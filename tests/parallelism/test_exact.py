"""The best strategy there is, proven."""

from __future__ import annotations

from hypothesis import given, settings
from parallelism_problems import every, problems

from dltune.parallelism.engine import Engine
from dltune.parallelism.problem import Problem


@settings(max_examples=300, deadline=None)
@given(problems())
def test_best_of_all(some: Problem) -> None:
    times = every(some)
    least = min(time for time, _ in times)
    for start in (times[0], times[-1]):
        proof = Engine(some).prove(start[1], 1000, 60.0, 10**6)
        assert proof.time == proof.bound == least
        assert Engine(some).simulate(proof.best) == least
