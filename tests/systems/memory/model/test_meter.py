"""The quick count of memory is the one that `schedule.lives` gives."""

from __future__ import annotations

import numpy as np
import small_steps
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.step_graph import Kind
from dltune.systems.memory.model.schedule import Meter, Step, lives


@st.composite
def runs(draw):
    """A graph with views and variables, its nodes in their order with some again, and what writes
    which variable."""
    count = draw(st.integers(2, 8))
    reads, kinds, alias = [], [], []
    for node in range(count):
        row = draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set()
        reads.append(sorted(row))
        kind = draw(st.sampled_from([Kind.RESULT] * 3 + [Kind.VARIABLE]))
        view = draw(st.sampled_from([None, *reads[-1]]))
        kinds.append(Kind.RESULT if view is not None else kind)
        alias.append(node if view is None else alias[view])
    bytes = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    variables = [node for node in range(count) if kinds[node] == Kind.VARIABLE]
    written = {
        node: [one for one in variables if one < node and draw(st.booleans())]
        for node in range(count)
    }
    graph = small_steps.graph(reads, bytes, kinds, alias=alias)
    run = []
    for node in range(count):
        again = [one for one in range(node) if kinds[one] == Kind.RESULT]
        run += [(one, False) for one in again if draw(st.integers(0, 3)) == 0]
        run.append((node, True))
    return graph, written, run


@given(runs())
def test_it_counts_as_the_schedule_does(drawn):
    graph, written, run = drawn
    nodes = np.array([node for node, _ in run], np.int32)
    first = np.flatnonzero([first for _, first in run]).astype(np.int64)
    found = Meter(graph, range(len(graph)), written).lives(nodes, first)
    wanted = lives(graph, [Step(node) for node, _ in run], written)

    def rows(lives):
        parts = (lives.tensor, lives.begin, lives.end, lives.bytes)
        return sorted(zip(*(part.tolist() for part in parts), strict=True))

    assert rows(found) == rows(wanted)
