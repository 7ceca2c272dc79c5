"""Orders in which results wait for less time: what they keep, and what they bring."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from small_steps import graph

from dltune.simulate.step_graph import Kind, StepGraph, peak
from dltune.systems.memory.model.schedule import NOTHING, Step, lean, lives


def needed(made: StepGraph, order, written=NOTHING) -> int:
    return peak(lives(made, [Step(node) for node in order], written))[0]


@st.composite
def graphs(draw: st.DrawFn) -> StepGraph:
    count = draw(st.integers(1, 5))
    before = [
        draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in range(count)
    ]
    after = [
        draw(st.lists(st.integers(0, node - 1), max_size=1)) if node else []
        for node in range(count)
    ]
    bytes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    kinds = draw(
        st.lists(
            st.sampled_from([Kind.RESULT, Kind.RESULT, Kind.CONSTANT]),
            min_size=count,
            max_size=count,
        )
    )
    return graph(before, bytes, kinds, after)


def orders(made: StepGraph):
    """All in which nothing runs before what it waits for."""
    before = [set(row) for row in made.predecessors.lists]
    for order in itertools.permutations(range(len(made))):
        if all(before[node] <= set(order[:at]) for at, node in enumerate(order)):
            yield order


@given(graphs())
def test_all_nodes_run_after_what_they_wait_for_and_need_no_more(made):
    given = list(range(len(made)))
    order = lean(made, given)
    assert sorted(order) == given
    at = {node: place for place, node in enumerate(order)}
    assert all(at[one] < at[node] for node in given for one in made.predecessors.lists[node])
    assert needed(made, order) <= needed(made, given)
    assert needed(made, order) >= min(needed(made, other) for other in orders(made))


def test_what_is_read_at_the_end_is_computed_there():
    """As momentum times a constant, which an executor starts with the step."""
    #        decayed momentum, three layers, the update
    reads = [[], [], [1], [2], [0, 3]]
    made = graph(reads, [8, 3, 3, 3, 0])
    assert needed(made, range(5)) == 14
    assert list(lean(made, range(5))) == [1, 2, 3, 0, 4]
    assert needed(made, lean(made, range(5))) == 11


def test_the_last_reader_of_something_large_runs_as_soon_as_it_can():
    """As a weight's gradient, which frees an activation."""
    # an activation, the gradient that comes, that for the layer before, what follows, the weight's
    reads = [[], [], [1], [2], [0, 1]]
    made = graph(reads, [9, 4, 4, 9, 1])
    assert needed(made, range(5)) == 9 + 4 + 4 + 9
    assert list(lean(made, range(5))) == [0, 1, 4, 2, 3]


def test_what_reads_a_variable_stays_on_its_side_of_what_writes_it():
    """The product would wait for its reader, and read the new value then."""
    # a variable, what reads it, a large result, what writes the variable, the product's reader
    reads = [[], [0], [], [0, 2], [1]]
    kinds = [Kind.VARIABLE, *[Kind.RESULT] * 4]
    made = graph(reads, [0, 8, 9, 0, 0], kinds)
    free = list(lean(made, range(5)))
    assert free.index(1) > free.index(3)
    kept = list(lean(made, range(5), in_turn=[[3, 1]]))
    assert kept.index(1) < kept.index(3)
