"""Graphs of steps against slow ways to say the same."""

from __future__ import annotations

import numpy as np
from drawn import graph, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.simulate.step_graph import CSR, StepGraph, ancestors, cyclic, lives, peak, topological

rows = st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=7, max_size=7)


def waits_for(step: StepGraph) -> list[set[int]]:
    return [
        {
            before
            for before in [*(step.tensors.producer[t] for t in step.reads[n]), *step.control[n]]
            if not step.back[before]
        }
        for n in range(len(step))
    ]


@given(rows)
def test_rows(lists):
    made = CSR.of(lists)
    assert list(made) == lists
    assert [made[k].tolist() for k in range(len(made))] == lists
    assert made.row.tolist() == [k for k, row in enumerate(lists) for _ in row]
    assert list(made.distinct()) == [list(dict.fromkeys(row)) for row in lists]
    back = [[k for k, row in enumerate(lists) for item in row if item == j] for j in range(7)]
    assert list(made.transposed(7)) == back


@given(graphs())
def test_who_waits_for_whom(step):
    before = waits_for(step)
    assert [set(row) for row in step.predecessors] == before
    assert all(len(row) == len(set(row)) for row in step.predecessors)
    after = [[k for k, others in enumerate(before) if n in others] for n in range(len(step))]
    assert list(step.successors) == after


def test_inputs_come_before_control_and_in_the_order_of_their_slots():
    step = graph([[], [], [], [2, 0, 2]], [[], [], [], [0, 1]])
    assert step.predecessors.lists[3] == [2, 0, 1]


@given(graphs())
def test_orders_and_cycles(step):
    before = waits_for(step)
    order = topological(step)
    place = {node: k for k, node in enumerate(order)}
    assert all(place[other] < place[node] for node in order for other in before[node])
    never = set(range(len(step)))
    for _ in range(len(step)):
        never = {node for node in never if before[node] & never}
    assert cyclic(step) == sorted(never)
    assert len(order) + len(never) == len(step)


@given(graphs(), st.data())
def test_ancestors(step, data):
    nodes = data.draw(st.sets(st.integers(0, len(step) - 1), max_size=3))
    before = waits_for(step)
    reached = set(nodes)
    for _ in range(len(step)):
        reached |= {other for node in reached for other in before[node]}
    assert ancestors(step, nodes) == reached


@settings(max_examples=300)
@given(graphs(acyclic=True), st.data())
def test_memory_lives_from_its_node_to_its_last_reader(step, data):
    """By asking at each moment which tensors are still needed."""
    start = [data.draw(st.integers(-1, 20)) for _ in range(len(step))]
    end = [-1 if at < 0 else at + data.draw(st.integers(0, 5)) for at in start]
    found = lives(step, np.array(start, np.int64), np.array(end, np.int64))
    tensors = step.tensors

    def needed(moment: int) -> set[int]:
        live = set()
        for tensor in range(len(tensors)):
            node = tensors.producer[tensor]
            if start[node] < 0 or tensors.alias[tensor] != tensor or tensors.kind[tensor]:
                continue
            readers = [
                end[reader]
                for reader in range(len(step))
                for read in step.reads[reader]
                if tensors.alias[read] == tensor and start[reader] >= 0
            ]
            if start[node] <= moment < max([end[node], *readers]):
                live.add(tensor)
        return live

    for moment in range(30):
        now = (found.begin <= moment) & (moment < found.end)
        assert set(found.tensor[now].tolist()) == needed(moment)
    most, moment, held = peak(found)
    sizes = [sum(1 << t for t in needed(moment)) for moment in range(30)]
    assert most == max(sizes)
    assert set(held) == (needed(moment) if most else set())
    assert held == sorted(held, reverse=True)
