"""Budgets are met, and what is computed again for them takes little more time than the least."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_steps import graph, least_seconds

from dltune.simulate.step_graph import Kind, StepGraph, peak
from dltune.systems.memory.model.schedule import Step, lives
from dltune.systems.memory.model.selection import BudgetTooSmall, select


@st.composite
def steps_of_training(draw: st.DrawFn) -> tuple[StepGraph, list[int]]:
    """Some nodes one after the other, and as many that read them from the last to the first."""
    half = draw(st.integers(2, 4))
    reads: list[list[int]] = [[]]
    reads += [sorted({node - 1, draw(st.integers(0, node - 1))}) for node in range(1, half)]
    reads += [sorted({half + k - 1, half - 1 - k}) for k in range(half)]
    bytes = draw(st.lists(st.integers(1, 4), min_size=2 * half, max_size=2 * half))
    seconds = draw(st.lists(st.integers(1, 9), min_size=2 * half, max_size=2 * half))
    return graph(reads, bytes), seconds


@given(steps_of_training(), st.data())
def test_a_budget_is_met_or_cannot_easily_be(drawn, data):
    made, seconds = drawn
    order = range(len(made))
    most, _, _ = peak(lives(made, [Step(node) for node in order]))
    budget = data.draw(st.integers(1, most + 1))
    exact = least_seconds(made, seconds, budget)
    try:
        found = select(made, order, seconds, [len(made)] * len(made), budget)
    except BudgetTooSmall as error:
        too_small = error
    else:
        too_small = None
    if too_small is not None:
        assert budget < too_small.least <= most
        return
    assert found.peak <= budget
    assert found.peak == peak(lives(made, found.steps))[0]
    assert exact is not None
    assert found.seconds >= exact
    assert [one for one, _ in first_times(found.steps)] == list(order)
    if budget >= most:
        assert found.seconds == 0


def first_times(steps):
    seen = set()
    for step in steps:
        if step.node not in seen:
            seen.add(step.node)
            yield step.node, step


def test_how_far_it_is_from_the_least():
    """A chain of eight layers, at all budgets that can be met."""
    half = 4
    reads = [[], *([node - 1] for node in range(1, half))]
    reads += [sorted({half + k - 1, half - 1 - k}) for k in range(half)]
    over = []
    for size in itertools.product((1, 2, 3), repeat=half):
        made = graph(reads, [*size, *([1] * half)])
        seconds = [1, 3, 2, 4, 1, 1, 1, 1]
        most, _, _ = peak(lives(made, [Step(node) for node in range(2 * half)]))
        for budget in range(1, most):
            exact = least_seconds(made, seconds, budget)
            if exact is None:
                continue
            try:
                found = select(made, range(8), seconds, [8] * 8, budget)
            except BudgetTooSmall:
                pytest.fail(f"{budget} bytes are enough for {size}")
            over.append((found.seconds + sum(seconds)) / (exact + sum(seconds)))
    assert len(over) == 295
    assert statistics.mean(over) < 1.05


def test_what_must_not_run_again_is_kept():
    """Only the first result frees enough, and it is read again by the last node."""
    made = graph([[], [0], [1], [2], [1, 3], [0, 4]], [4, 4, 4, 4, 1, 1])
    order, seconds = range(6), [1.0] * 6
    found = select(made, order, seconds, [6] * 6, 12)
    assert [one.node for one in found.steps] == [0, 1, 2, 3, 4, 0, 5]
    assert (found.peak, found.seconds) == (12, 1.0)
    for again in ([0] * 6, [5] * 6):  # not at all, not before the last
        with pytest.raises(BudgetTooSmall):
            select(made, order, seconds, again, 12)


def test_what_is_read_of_a_variable_after_it_is_written_takes_memory():
    kinds = [Kind.VARIABLE, Kind.RESULT, Kind.RESULT, Kind.RESULT]
    made = graph([[], [0], [], [0]], [8, 1, 1, 1], kinds)  # node 2 writes it
    order = range(4)
    assert peak(lives(made, [Step(node) for node in order]))[0] == 1
    written = {2: [0]}
    found = lives(made, [Step(node) for node in order], written)
    assert peak(found)[0] == 8 + 1
    held = [
        (int(b), int(e))
        for t, b, e in zip(found.tensor, found.begin, found.end, strict=True)
        if t == 0
    ]
    assert held == [(2, 4)]
    # the last reader ran before it was written: nothing is kept
    assert peak(lives(made, [Step(node) for node in (0, 1, 3, 2)], written))[0] == 1
