"""Links between ranks, timed by collectives."""

from __future__ import annotations

import jaxes
import pytest

from dltune.systems.parallelism.jax import links
from dltune.systems.parallelism.jax.links import Speeds
from dltune.systems.parallelism.model.problem import routes
from dltune.systems.parallelism.schemas.topology import Kind

KIND = Kind("core", 1.0, 1.0)


def test_speeds_are_those_of_the_largest_without_the_latency_of_the_smallest() -> None:
    samples = {kind: [(1, 0.5), (10, 0.5 + 10 / n)] for n, kind in ((2, "gather"), (1, "swap"))}
    found = Speeds.of({**samples, "sum": [(1, 0.5), (10, 3.0)]})
    assert found == Speeds(0.5, 2.0, 1.0, 4.0)
    assert found.times == (0.5, 2.0)


def test_all_ranks_reach_each_other_alike() -> None:
    ways = routes(links.topology(3, Speeds(0.5, 2.0, 1.0, 4.0), KIND))
    for a in range(3):
        for b in {0, 1, 2} - {a}:
            assert (ways.latency[a, b], ways.per_byte[a, b]) == (0.5, 0.5)
            assert ways.channel[a, b] == a  # nothing else is computed while a rank sends


@jaxes.needs_jax
@pytest.mark.jax
def test_ranks_of_this_machine() -> None:
    found = links.measured(2, jaxes.PYTHON)
    assert min(found.latency, found.gather, found.swap, found.sum) > 0
