"""What is needed when, against looking at each step by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.graph.csr import CSR
from dltune.graph.step_graph import Kind, StepGraph, Tensors
from dltune.memory.schedule import Step, levels, lives


@st.composite
def graphs(draw: st.DrawFn) -> StepGraph:
    """Each node gives out one tensor, some of them in the memory of one that they read."""
    count = draw(st.integers(1, 8))
    reads = [
        draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in range(count)
    ]
    alias: list[int] = []
    for node, row in enumerate(reads):
        over = draw(st.booleans()) and row
        alias.append(alias[row[0]] if over else node)
    kinds = [draw(st.sampled_from([Kind.RESULT, Kind.RESULT, Kind.VARIABLE])) for _ in reads]
    kind = [kinds[owner] for owner in alias]
    bytes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return StepGraph(
        [str(node) for node in range(count)],
        np.arange(count, dtype=np.int32),
        np.ones(count),
        Tensors.of([(node, 0) for node in range(count)], bytes, alias, kind),
        CSR.of(reads),
        CSR.of(() for _ in reads),
        np.zeros(count, np.bool_),
    )


@given(graphs(), st.data())
def test_needed_at_a_step_is_what_a_later_one_reads_before_it_is_there_anew(graph, data):
    count = len(graph)
    steps = [Step(node) for node in range(count)]
    for _ in range(data.draw(st.integers(0, 5))):
        node = data.draw(st.integers(0, count - 1))
        own = [node] if graph.tensors.alias[node] == node else []
        back = data.draw(st.booleans()) and graph.tensors.kind[node] == Kind.RESULT
        steps.append(Step(node, tuple(own) if back else ()))
    found = lives(graph, steps)
    bytes, number = levels(found, len(steps))
    for at in range(len(steps)):
        needed = set()
        for tensor in range(count):
            if graph.tensors.alias[tensor] != tensor or graph.tensors.kind[tensor] != Kind.RESULT:
                continue
            if present(graph, steps, tensor, at) and needed_later(graph, steps, tensor, at):
                needed.add(tensor)
        # what comes back and is given out again in one step is there twice
        twice = [one for one in steps[at].fetched if one == steps[at].node]
        assert bytes[at] == sum(graph.tensors.bytes[one] for one in [*needed, *twice])
        assert number[at] == len(needed) + len(twice)


def present(graph: StepGraph, steps: list[Step], tensor: int, at: int) -> bool:
    return any(step.node == tensor for step in steps[: at + 1])


def needed_later(graph: StepGraph, steps: list[Step], tensor: int, at: int) -> bool:
    if steps[at].node == tensor or tensor in steps[at].fetched:
        return True
    for place in range(at, len(steps)):
        if place > at and tensor in steps[place].fetched:
            return False
        if any(graph.tensors.alias[one] == tensor for one in graph.reads[steps[place].node]):
            return True
        if place > at and steps[place].node == tensor:
            return False
    return False


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
