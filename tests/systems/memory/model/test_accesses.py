"""What must come back of a block that leaves, against looking at all that is read later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from small_steps import graphs

from dltune.simulate.step_graph import Kind
from dltune.systems.memory.model.schedule import Step, accesses


@given(graphs(), st.data())
def test_blocks_of_which_one_tensor_is_read_later(graph, data):
    steps = [Step(node) for node in range(len(graph))]
    for _ in range(data.draw(st.integers(0, 3))):
        node = data.draw(st.integers(0, len(graph) - 1))
        if graph.tensors.kind[node] == Kind.RESULT and graph.tensors.alias[node] == node:
            at = data.draw(st.integers(node + 1, len(graph)))
            steps.insert(at, Step(node))
    uses = accesses(graph, steps)
    found = {
        (block, at): tensor
        for block, row in uses.alone(graph, steps).items()
        for at, tensor in row.items()
    }
    wanted = {}
    for block, row in enumerate(uses.at):
        for at in row:
            later = set()
            for tensor in range(len(graph)):
                given = [
                    now
                    for now, touched in enumerate(uses.tensors)
                    if (tensor, block) in touched and steps[now].node == tensor
                ]
                read = [
                    now
                    for now, touched in enumerate(uses.tensors)
                    if (tensor, block) in touched and steps[now].node != tensor
                ]
                if any(r > at and max((g for g in given if g < r), default=-1) <= at for r in read):
                    later.add(tensor)
            if len(later) == 1:
                wanted[block, at] = later.pop()
    assert found == wanted
