"""The best selection is the best, its bound holds, and the quick one is never better."""

from __future__ import annotations

import builtins
import contextlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steps import graph, least_seconds

from dltune.errors import UsageError
from dltune.graph.csr import CSR
from dltune.graph.liveness import peak
from dltune.graph.step_graph import Kind, StepGraph, Tensors
from dltune.memory import moments
from dltune.memory.curve import curve
from dltune.memory.exact import exact
from dltune.memory.schedule import Step, lives
from dltune.memory.selection import BudgetTooSmall, select

LIMIT = 5.0  # seconds, of which small steps take a fraction


@st.composite
def small_steps(draw: st.DrawFn) -> tuple[StepGraph, list[int], int]:
    """Any graph of at most six nodes, times, and a budget a little below what it needs."""
    count = draw(st.integers(3, 6))
    reads = [
        sorted(draw(st.sets(st.integers(0, node - 1), max_size=2))) if node else []
        for node in range(count)
    ]
    bytes = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    seconds = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    made = graph(reads, bytes)
    most = needed(made, [Step(node) for node in range(count)])
    return made, seconds, max(1, most - draw(st.integers(0, 3)))


def needed(made, steps):
    return peak(lives(made, steps))[0]


@settings(max_examples=30, deadline=None)
@given(small_steps())
def test_it_takes_what_the_best_of_all_orders_takes(drawn):
    made, seconds, budget = drawn
    arguments = (made, range(len(made)), seconds, [len(made)] * len(made), budget)
    wanted = least_seconds(made, seconds, budget)
    bound = moments.least(*arguments, limit=LIMIT)
    try:
        found = exact(*arguments, limit=LIMIT)
    except BudgetTooSmall:
        assert wanted is None
        return
    assert wanted is not None
    assert found.selection.seconds == wanted
    assert needed(made, found.selection.steps) == found.selection.peak <= budget
    assert found.bound == pytest.approx(wanted)
    assert found.gap == pytest.approx(0)
    assert bound <= wanted + 1e-6
    every = range(len(made))
    assert moments.Relaxation(*arguments).solve(every, LIMIT).bound <= wanted + 1e-6
    with contextlib.suppress(BudgetTooSmall):
        assert select(*arguments).seconds >= wanted


def test_a_budget_below_what_one_node_needs_cannot_be_met_by_anyone():
    made = graph([[], [0], [0, 1]], [4, 4, 1])
    arguments = (made, range(3), [1.0] * 3, [3] * 3, 8)
    assert moments.least(*arguments) == math.inf
    with pytest.raises(BudgetTooSmall) as error:
        exact(*arguments, limit=LIMIT)
    assert error.value.least == 9


def test_views_keep_the_memory_that_they_are_of():
    """Node 1 gives a view of what node 0 gives; node 4 reads it again."""
    made = StepGraph(
        [str(node) for node in range(5)],
        np.arange(5, dtype=np.int32),
        np.ones(5),
        Tensors.of([(n, 0) for n in range(5)], [8, 8, 4, 4, 1], [0, 0, 2, 3, 4]),
        CSR.of([[], [0], [1], [2], [1, 3]]),
        CSR.of(() for _ in range(5)),
        np.zeros(5, np.bool_),
    )
    assert needed(made, [Step(node) for node in range(5)]) == 16
    found = exact(made, range(5), [3.0, 1.0, 1.0, 1.0, 1.0], [5] * 5, 14, limit=LIMIT)
    assert [step.node for step in found.selection.steps] == [0, 1, 2, 3, 0, 1, 4]
    assert (found.selection.peak, found.selection.seconds, found.bound) == (13, 4.0, 4.0)


def test_what_must_not_run_again_does_not():
    made = graph([[], [0], [1], [2], [1, 3], [0, 4]], [4, 4, 4, 4, 1, 1])
    found = exact(made, range(6), [1.0] * 6, [6] * 6, 12, limit=LIMIT)
    assert [step.node for step in found.selection.steps] == [0, 1, 2, 3, 4, 0, 5]
    for again in ([0] * 6, [5] * 6):  # not at all, not before the last
        with pytest.raises(BudgetTooSmall):
            exact(made, range(6), [1.0] * 6, again, 12, limit=LIMIT)
    assert moments.least(made, range(6), [1.0] * 6, [0] * 6, 12) == math.inf


def test_values_of_written_variables_count():
    """Node 2 writes the variable that node 0 has read, and node 5 reads that value once more."""
    kinds = [Kind.VARIABLE] + [Kind.RESULT] * 5
    made = graph([[], [0], [], [1], [3], [0, 1, 4]], [4, 4, 1, 4, 4, 1], kinds)
    arguments = (made, range(6), [1.0] * 6, [0, 2, 0, 6, 6, 0])
    written = {2: [0]}
    base = [Step(node) for node in range(6)]
    most = peak(lives(made, base, written))[0]
    assert most == 4 + 4 + 4 + 4
    with pytest.raises(BudgetTooSmall):
        exact(*arguments, most - 1, written, limit=LIMIT)
    assert exact(*arguments, most, written, limit=LIMIT).selection.seconds == 0


def test_less_memory_never_takes_less_time():
    half = 5
    reads = [[], *([node - 1] for node in range(1, half))]
    reads += [sorted({half + k - 1, half - 1 - k}) for k in range(half)]
    made = graph(reads, [3, 1, 4, 1, 5, 1, 1, 1, 1, 1])
    seconds = [2, 7, 1, 8, 2, 1, 1, 1, 1, 1]
    most = needed(made, [Step(node) for node in range(len(made))])
    budgets = list(range(most, 0, -1))
    found = curve(made, range(len(made)), seconds, [len(made)] * len(made), budgets)
    assert found[0].seconds == 0
    assert found[-1] is None
    met = [(one, budget) for one, budget in zip(found, budgets, strict=True) if one]
    assert len(met) > 5
    assert found[len(met) :] == [None] * (len(found) - len(met))
    assert all(needed(made, one.steps) == one.peak <= budget for one, budget in met)
    times = [one.seconds for one, _ in met]
    assert times == sorted(times)
    assert times[-1] > 0


def test_without_the_solver_a_person_is_told_what_to_install(monkeypatch):
    whole = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("ortools"):
            raise ImportError(name)
        return whole(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    made = graph([[], [0], [1], [0, 2]], [4, 4, 4, 1])
    with pytest.raises(UsageError, match="need ortools, which is not installed") as error:
        exact(made, range(4), [1.0] * 4, [4] * 4, 9, limit=LIMIT)
    assert error.value.remedy == "pip install 'dltune[memory]'"
