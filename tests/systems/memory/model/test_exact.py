"""The best selection is the best, its bound holds, and the quick one is never better."""

from __future__ import annotations

import contextlib
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steps import graph, least_seconds

from dltune.simulate.step_graph import CSR, Kind, StepGraph, Tensors, peak
from dltune.systems.memory.model import optimum
from dltune.systems.memory.model.schedule import Step, lives
from dltune.systems.memory.model.selection import BudgetTooSmall, exact, select

LIMIT = 3600.0  # seconds: no small step takes them, so that none ends for want of time


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
    return made, seconds, max(1, most - draw(st.integers(1, 3)))


def needed(made, steps):
    return peak(lives(made, steps))[0]


@settings(max_examples=30)
@given(small_steps())
def test_it_takes_what_the_best_of_all_orders_takes(drawn):
    made, seconds, budget = drawn
    arguments = (made, range(len(made)), seconds, [len(made)] * len(made), budget)
    wanted = least_seconds(made, seconds, budget)
    try:
        found = exact(*arguments, limit=LIMIT)
    except BudgetTooSmall:
        assert wanted is None
        return
    assert wanted is not None
    assert found.failure is None
    assert needed(made, found.selection.steps) == found.selection.peak <= budget
    assert found.bound <= wanted + 1e-6
    assert found.selection.seconds == wanted
    assert found.bound == pytest.approx(wanted)
    assert found.gap == pytest.approx(0)
    with contextlib.suppress(BudgetTooSmall):
        assert select(*arguments).seconds >= wanted


@settings(max_examples=12)
@given(small_steps())
def test_moments_bound_it_one_as_all(drawn):
    made, seconds, budget = drawn
    arguments = (made, range(len(made)), seconds, [len(made)] * len(made), budget)
    wanted = least_seconds(made, seconds, budget)
    most = math.inf if wanted is None else wanted + 1e-6
    assert optimum.least(*arguments, limit=LIMIT) <= most
    assert optimum.Relaxation(*arguments).solve(range(len(made)), LIMIT).bound <= most


def test_a_budget_below_what_one_node_needs_cannot_be_met_by_anyone():
    made = graph([[], [0], [0, 1]], [4, 4, 1])
    arguments = (made, range(3), [1.0] * 3, [3] * 3, 8)
    assert optimum.least(*arguments, limit=LIMIT) == math.inf
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
    assert optimum.least(made, range(6), [1.0] * 6, [0] * 6, 12, limit=LIMIT) == math.inf


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


def test_what_does_not_fit_is_not_taken():
    made = graph([[], [0], [1], [2], [1, 3], [0, 4]], [4, 4, 4, 4, 1, 1])
    arguments = (made, range(6), [1.0] * 6, [6] * 6, 12)
    quick = select(*arguments)
    dear = replace(quick, seconds=9.0)  # as if it were not the best
    found = exact(*arguments, limit=LIMIT, begin=dear, fits=lambda _: False)
    assert (found.selection, found.bound <= 1.0) == (dear, True)
    assert exact(*arguments, limit=LIMIT, begin=dear).selection.seconds < 9.0


def test_when_the_solver_dies_the_quick_selection_stands(monkeypatch, tmp_path):
    made = graph([[], [0], [1], [2], [1, 3], [0, 4]], [4, 4, 4, 4, 1, 1])
    arguments = (made, range(6), [1.0] * 6, [6] * 6, 12)
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    found = exact(*arguments, limit=LIMIT)
    assert found.selection == select(*arguments)
    assert (found.bound, found.failure) == (0.0, "the solver was killed by SIGSEGV")
