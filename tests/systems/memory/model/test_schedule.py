"""What is needed when, against looking at each step by itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import small_steps
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.step_graph import CSR, Kind, StepGraph, Tensors
from dltune.systems.memory.model.schedule import Step, levels, lives


@given(small_steps.graphs(), st.data())
def test_memory_is_held_while_something_in_it_will_be_read(graph, data):
    """Against one object for each time that memory is taken, and readers that keep it."""
    count = len(graph)
    steps = [Step(node) for node in range(count)]
    for _ in range(data.draw(st.integers(0, 5))):
        node = data.draw(st.integers(0, count - 1))
        result = graph.tensors.kind[node] == Kind.RESULT and graph.tensors.alias[node] == node
        back = data.draw(st.booleans()) and result
        steps.append(Step(node, (node,) if back else ()))
    taken: list[tuple[int, set[int]]] = []  # whose, and the steps at which it is used
    memory: dict[int, tuple[int, set[int]]] = {}  # by tensor
    for at, (node, fetched) in enumerate(steps):
        for tensor in fetched:
            memory[tensor] = (tensor, {at})
            taken.append(memory[tensor])
        for tensor in graph.reads[node].tolist():
            if tensor in memory:
                memory[tensor][1].add(at)
        owner = int(graph.tensors.alias[node])
        if graph.tensors.kind[node] != Kind.RESULT:
            continue
        if owner == node:
            memory[node] = (node, {at})
            taken.append(memory[node])
        else:
            over = next(t for t in graph.reads[node].tolist() if graph.tensors.alias[t] == owner)
            memory[node] = memory[over]
            memory[over][1].add(at)
    bytes, number = levels(lives(graph, steps), len(steps))
    for at in range(len(steps)):
        held = [whose for whose, used in taken if min(used) <= at <= max(used)]
        assert bytes[at] == sum(graph.tensors.bytes[whose] for whose in held)
        assert number[at] == len(held)


@given(small_steps.graphs(), st.data())
def test_a_kernel_writes_over_what_nothing_reads_any_more(graph, data):
    """Against an executor that hands what is read to each reader, and counts who still has it."""
    count, alias = len(graph), graph.tensors.alias.tolist()
    made = dataclasses.replace(
        graph,
        tensors=Tensors.of([(node, 0) for node in range(count)], graph.tensors.bytes.tolist()),
    )
    reads = made.reads.lists
    steps = [Step(node) for node in range(count)]
    steps += [
        Step(data.draw(st.integers(0, count - 1))) for _ in range(data.draw(st.integers(0, 5)))
    ]
    # where the graph has an alias, the kernel may write over any of its inputs, else over none
    over = {node: reads[node] for node in range(count) if alias[node] != node}
    latest: dict[int, int] = {}
    given_by: list[list[int]] = []  # of each step's inputs
    for at, (node, _) in enumerate(steps):
        given_by.append([latest[one] for one in reads[node]])
        latest[node] = at
    readers = [sum(row.count(at) for row in given_by) for at in range(len(steps))]
    users: dict[int, int] = {}  # of memory, by the step that took it
    size: dict[int, int] = {}
    memory: list[int] = []  # by step, that of its result
    needed = []
    for at, (node, _) in enumerate(steps):
        inputs = [memory[one] for one in given_by[at]]
        tried = [memory[given_by[at][reads[node].index(one)]] for one in over.get(node, ())]
        mine = next((one for one in tried if users[one] == 1), at)
        memory.append(mine)
        if mine == at:
            users[at], size[at] = 0, int(made.tensors.bytes[node])
        users[mine] += readers[at]
        needed.append(sum(size[one] for one, left in users.items() if left or one == mine))
        for one in inputs:
            users[one] -= 1
    bytes, _ = levels(lives(made, steps, forwarded=over), len(steps))
    assert bytes.tolist() == needed


def test_what_nothing_has_given_out_cannot_be_read():
    graph = StepGraph(
        ["a", "b"],
        np.arange(2, dtype=np.int32),
        np.ones(2),
        Tensors.of([(0, 0)], [1]),
        CSR.of([(), (0,)]),
        CSR.of([(), ()]),
        np.zeros(2, np.bool_),
    )
    with pytest.raises(ValueError, match="b reads what nothing has given out"):
        lives(graph, [Step(1)])
    with pytest.raises(ValueError, match="brings back what nothing has given out"):
        lives(graph, [Step(1, (0,))])
