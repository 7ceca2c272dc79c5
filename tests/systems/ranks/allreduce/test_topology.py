"""The order of allreduces: the thesis' example, and random graphs against slow definitions."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transfers import Dag, concurrent, dags, finishes

from dltune.base.errors import UsageError
from dltune.simulate.overlap import Cost, partitions
from dltune.systems.ranks.allreduce.order import Topology, traverse

MIB = 1 << 20


def paths(inputs: Sequence[Sequence[int]]) -> list[list[bool]]:
    """`reach[a][b]`: a path leads from a to b (Warshall)."""
    n = len(inputs)
    reach = [[a in inputs[b] for b in range(n)] for a in range(n)]
    for k in range(n):
        for a in range(n):
            if reach[a][k]:
                for b in range(n):
                    reach[a][b] = reach[a][b] or reach[k][b]
    return reach


def longest(inputs: Sequence[Sequence[int]], node: int) -> int:
    return max((1 + longest(inputs, parent) for parent in inputs[node]), default=0)


# Figures 6.13 and 6.14: Allreduce0 before Allreduce2 before Allreduce3; Allreduce1 and Allreduce4
# hang on nothing of these, the latter deeper. Fetches are Allreduce1, Allreduce3 and Allreduce4.
FIGURE = {
    "input": (),
    "a": ("input",),
    "b": ("input",),
    "Allreduce0": ("a",),
    "Allreduce1": ("b",),
    "Allreduce2": ("Allreduce0",),
    "Allreduce3": ("Allreduce2",),
    "c": ("b",),
    "d": ("c",),
    "e": ("d",),
    "Allreduce4": ("e",),
}
NAMES = list(FIGURE)


def figure() -> Topology:
    inputs = [tuple(NAMES.index(parent) for parent in parents) for parents in FIGURE.values()]
    transfers = sorted(name for name in NAMES if name.startswith("Allreduce"))
    places = {NAMES.index(name): place for place, name in enumerate(transfers)}
    fetches = [NAMES.index(f"Allreduce{k}") for k in (1, 3, 4)]
    return traverse(inputs, fetches, places)


def test_the_example_of_figure_6_14() -> None:
    topology = figure()
    assert [NAMES[node] for node in topology.order] == [f"Allreduce{k}" for k in range(5)]
    assert concurrent(topology.before, 0, 1)
    assert concurrent(topology.before, 1, 4)
    assert concurrent(topology.before, 0, 4)
    assert not concurrent(topology.before, 0, 2)
    assert not concurrent(topology.before, 2, 3)
    assert not concurrent(topology.before, 0, 3)
    found = partitions(topology.before, [MIB] * 5, [0.0] * 5, Cost(1e-3, 1e-9), 64 * MIB)
    assert found[0] == ((0, 1), (2,), (3, 4))


def test_a_threshold_cuts_the_example_s_bins() -> None:
    found = partitions(figure().before, [MIB] * 5, [0.0] * 5, Cost(1e-3, 1e-9), MIB)
    assert found == [((0,), (1,), (2,), (3,), (4,))]


@given(dags())
def test_what_depends_and_the_order_of_ids(dag: Dag) -> None:
    topology = traverse(dag.inputs, dag.fetches, dag.places)
    reach = paths(dag.inputs)
    assert sorted(topology.order) == sorted(dag.places)  # every node leads to some fetch
    for k, node in enumerate(topology.order):
        assert topology.before[k] == sum(
            1 << j for j, other in enumerate(topology.order) if reach[other][node]
        )
        assert topology.before[k] >> k == 0
    keys = [(longest(dag.inputs, node), dag.places[node]) for node in topology.order]
    assert keys == sorted(keys)


@given(dags(), st.randoms(use_true_random=False))
def test_renumbered_nodes_give_the_same_order(dag: Dag, chance: random.Random) -> None:
    new = list(range(len(dag.inputs)))
    chance.shuffle(new)
    inputs: list[tuple[int, ...]] = [()] * len(new)
    for node, parents in enumerate(dag.inputs):
        shuffled = [new[parent] for parent in parents]
        chance.shuffle(shuffled)
        inputs[new[node]] = tuple(shuffled)
    there = traverse(
        inputs,
        [new[node] for node in reversed(dag.fetches)],
        {new[node]: place for node, place in dag.places.items()},
    )
    here = traverse(dag.inputs, dag.fetches, dag.places)
    assert there == Topology(tuple(new[node] for node in here.order), here.before)


@given(dags(), st.integers(1, 8), st.integers(2, 3), st.randoms(use_true_random=False))
def test_every_order_of_readiness_finishes(
    dag: Dag, most: int, ranks: int, chance: random.Random
) -> None:
    topology = traverse(dag.inputs, dag.fetches, dag.places)
    n = len(topology.order)
    ready = [chance.random() for _ in range(n)]
    for bins in partitions(topology.before, [1] * n, ready, Cost(0.1, 0.1), 4, most):
        waiting = [[topology.order[k] for k in members] for members in bins]
        assert finishes(dag, waiting, ranks, chance)


def test_another_order_must_keep_dependencies() -> None:
    topology = figure()
    other = topology.reordered([4, 1, 0, 2, 3])
    assert [NAMES[node] for node in other.order][:2] == ["Allreduce4", "Allreduce1"]
    assert concurrent(other.before, 0, 2)
    assert not concurrent(other.before, 2, 3)
    with pytest.raises(ValueError, match="before one that it depends on"):
        topology.reordered([2, 0, 1, 3, 4])


def test_nodes_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="depend on each other"):
        traverse([(1,), (0,)], [0], {0: 0})


def test_a_chain_as_long_as_a_deep_network_needs_no_recursion() -> None:
    n = 50_000
    inputs = [(node - 1,) if node else () for node in range(n)]
    assert traverse(inputs, [n - 1], {n - 1: 0, 5: 1}).order == (5, n - 1)
