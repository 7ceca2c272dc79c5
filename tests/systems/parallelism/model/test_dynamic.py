"""The least sum, beside that of all strategies."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from parallelism_problems import problems, random_problem

from dltune.systems.parallelism.model import search
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import Problem
from dltune.systems.parallelism.model.search import Sums, least


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> Sums:
    """Any edges between operators of one to three configurations."""
    random = draw(st.randoms(use_true_random=False))
    counts = [random.randint(1, 3) for _ in range(random.randint(1, most))]
    own = tuple(np.array([random.randint(0, 9) for _ in range(n)]) for n in counts)
    edges = []
    for b in range(1, len(counts)):
        for _ in range(random.choice([0, 1, 1, 2, 3])):
            a = random.randrange(b)
            some = [random.randint(0, 9) for _ in range(counts[a] * counts[b])]
            edges.append((a, b, np.array(some).reshape(counts[a], counts[b])))
    kept = tuple(tuple(range(n)) for n in counts)
    return Sums(kept, own, tuple(edges))


def every(summed: Sums) -> int:
    return min(map(summed.cost, itertools.product(*(range(len(one)) for one in summed.own))))


@settings(max_examples=300, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_least_of_all_where_it_says_so(summed: Sums, random) -> None:
    blocks = [random.choice(["", "a", "b"]) for _ in summed.own]
    places, exact = least(summed, blocks)
    if exact:
        assert summed.cost(places) == every(summed)
    assert summed.cost(places) >= every(summed)


@settings(max_examples=50, deadline=None)
@given(graphs(most=3))
def test_three_operators_always_reduce(summed: Sums) -> None:
    places, exact = least(summed, [""] * len(summed.own))
    assert exact
    assert summed.cost(places) == every(summed)


def test_branches_that_meet_again_reduce() -> None:
    # 0 -> (1 | 2 -> 3 | 4) -> 5 -> 6, and past all of it
    ends = [(0, 1), (0, 2), (2, 3), (0, 4), (1, 5), (3, 5), (4, 5), (5, 6), (0, 6)]
    numbers = np.random.default_rng(0)
    own = tuple(numbers.integers(0, 50, 3) for _ in range(7))
    edges = tuple((a, b, numbers.integers(0, 50, (3, 3))) for a, b in ends)
    summed = Sums(((0, 1, 2),) * 7, own, edges)
    places, exact = least(summed, [""] * 7)
    assert exact
    assert summed.cost(places) == every(summed)


def test_what_does_not_reduce_is_divided_alike_by_block() -> None:
    """Four operators, each beside each other: two blocks of two."""
    ends = [(a, b) for b in range(4) for a in range(b)]
    numbers = np.random.default_rng(1)
    own = tuple(numbers.integers(0, 50, 3) for _ in range(4))
    edges = tuple((a, b, numbers.integers(0, 50, (3, 3))) for a, b in ends)
    summed = Sums(((0, 1, 2),) * 4, own, edges)
    places, exact = least(summed, ["a", "b", "a", "b"])
    assert not exact
    alike = [(a, b, a, b) for a in range(3) for b in range(3)]
    loose = [(a, b, a, c) for a in range(3) for b in range(3) for c in range(3)]
    assert min(map(summed.cost, loose)) <= summed.cost(places) <= min(map(summed.cost, alike))


@settings(max_examples=100, deadline=None)
@given(problems())
def test_of_problems(some: Problem) -> None:
    summed = search.sums(some)
    found = search.solve(some)
    kept = zip(summed.kept, found.strategy, strict=True)
    assert found.cost == summed.cost([some_of.index(at) for some_of, at in kept])
    assert found.cost >= every(summed)
    assert found.cost == every(summed) or not found.exact


def test_on_one_device_the_sum_is_the_step() -> None:
    """Nothing is moved there, and nothing overlaps."""
    for seed in range(200):
        some = random_problem(Random(seed))
        if some.devices == 1:
            found = search.solve(some)
            updated = Engine(some).simulate(found.strategy) - found.cost
            assert 0 <= updated <= len(some.graph.operators) * len(some.graph.weights)
