"""A simulated executor that counts references holds what `schedule.lives` tells beforehand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import small_steps
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.step_graph import Kind, peak
from dltune.systems.memory.model.allocator import BLOCK, Held, executed
from dltune.systems.memory.model.schedule import Step, lives


@given(small_steps.graphs(), st.data())
def test_it_holds_what_was_counted(graph, data):
    count, tensors = len(graph), graph.tensors
    results = (tensors.kind == Kind.RESULT).tolist()
    again = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
    order = [*range(count), *(node for node in again if results[node])]
    free = [one for one in range(count) if results[one] and data.draw(st.booleans())]
    forwarded = {one: graph.reads.lists[one] for one in free if tensors.alias[one] == one}
    step = SimpleNamespace(graph=graph, forwarded=forwarded, written={})
    found = executed(step, order)
    assert found.peak == peak(lives(graph, [Step(node) for node in order], {}, forwarded))[0]
    blocks = np.count_nonzero(tensors.bytes) + len(again)
    assert found.peak <= found.top <= found.peak + blocks * BLOCK or not found.peak


def test_a_variable_that_is_written_while_its_value_will_be_read_is_held_twice():
    #                      value, write, uses of the value
    made = small_steps.graph(
        [[], [], [0], [0]], [100, 0, 7, 7], [Kind.VARIABLE, *[Kind.RESULT] * 3]
    )
    step = SimpleNamespace(graph=made, forwarded={}, written={1: [0]})
    for order, most in (([0, 1, 2, 3], 107), ([0, 2, 1, 3], 107), ([0, 2, 3, 1], 7)):
        assert executed(step, order).peak == most
        run = [Step(node) for node in order]
        assert peak(lives(made, run, step.written))[0] == most


def test_a_pool_that_gives_the_first_piece_needs_more_than_the_peak():
    """A large one finds no room where two small ones were, on both sides of one that stays."""
    sizes = [BLOCK, BLOCK, BLOCK, 2 * BLOCK]
    made = small_steps.graph([[], [], [0], [1, 2]], sizes)
    step = SimpleNamespace(graph=made, forwarded={}, written={})
    assert executed(step, [0, 1, 2, 3]) == Held(4 * BLOCK, 5 * BLOCK)
