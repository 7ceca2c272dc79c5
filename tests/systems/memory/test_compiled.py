"""How much the compiler keeps, decided from what each of its budgets comes to."""

from __future__ import annotations

import msgspec
import pytest
from memory_steps import profile

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.pytorch_step import Compiled, Graph, Rung
from dltune.systems.memory.pytorch import decide_compiled
from dltune.systems.memory.request import Request
from dltune.systems.memory.section import Memory

# 10 live, 5 more as the backward pass begins; the loss takes 8 forward, 13 backward
FIRST = Graph(
    1,
    100.0,
    (
        Rung(1.0, 60, 65, 70, 0, 0.0),
        Rung(0.9, 40, 50, 55, 1, 2.0),
        Rung(0.4, 20, 45, 48, 2, 12.0),
        Rung(0.0, 0, 45, 80, 9, 30.0),
    ),
)
STEP = Compiled((FIRST,), live=10, forward=15 + 60 + 8, between=15 + 60, backward=15 + 73, passes=1)


def decided(
    budget: int | None = None, slowdown: float | None = None, step: Compiled = STEP
) -> Memory:
    assert struct_faults("", step) == []
    smallest = budget is None and slowdown is None
    section = decide_compiled(profile([]), step, Request(budget, smallest, slowdown))
    assert struct_faults("memory", section) == []
    return section


@pytest.mark.parametrize(
    ("budget", "kept", "peak"),
    [
        (88, 1.0, 88),
        (87, 0.9, 15 + 55),  # what computes again takes more than what the loss takes
        (69, 0.4, 15 + 48),
        (63, 0.4, 63),
    ],
)
def test_a_budget_is_met_with_the_least_work(budget, kept, peak):
    section = decided(budget)
    assert (section.compiled, section.live + section.peak) == (kept, peak)
    assert section.live + section.before == 88


def test_one_that_cannot_be_met():
    with pytest.raises(UsageError, match="budget too small: a step needs at least"):
        decided(62)


def test_as_little_as_can_be():
    smallest = decided()
    assert smallest.compiled == 0.4  # what is computed again takes more than is given up
    assert smallest.added == pytest.approx(0.12 * smallest.seconds)
    assert decided(slowdown=0.05).compiled == 0.9
    assert decided(slowdown=0.0).compiled == 1.0


def test_the_loss_may_take_the_most():
    step = msgspec.structs.replace(STEP, forward=15 + 60 + 40, backward=15 + 60)
    assert decided(step=step).compiled == 0.4
    assert decided(step=step).live + decided(step=step).peak == 15 + 20 + 40


def test_graphs_that_follow_one_another():
    """The second has what the first keeps beside it; a budget between two rungs comes to the one
    above."""
    second = Graph(1, 100.0, (Rung(1.0, 30, 32, 35, 0, 0.0), Rung(0.6, 10, 12, 30, 3, 10.0)))
    step = Compiled((FIRST, second), 10, 15 + 90, 15 + 90, 15 + 95 + 3, 1)
    section = decided(93, step=step)
    assert section.compiled == 0.9  # the first keeps 20 less, of the second nothing has changed
    assert section.live + section.peak == 113 - 20
    assert section.added == pytest.approx(0.01 * section.seconds)
    second = decided(92, step=step)
    assert (second.compiled, second.live + second.peak) == (0.6, 15 + 40 + 30)


def test_a_part_with_a_smaller_budget_of_the_scripts_own():
    part = Graph(1, 100.0, (Rung(0.5, 30, 32, 35, 0, 0.0),))
    step = Compiled((FIRST, part), 10, 15 + 90, 15 + 90, 15 + 95, 1)
    assert decided(15 + 95, step=step).compiled == 1.0


def test_one_that_runs_for_each_of_several_layers():
    """Each run has what those before it keep beside it."""
    twice = msgspec.structs.replace(FIRST, runs=2)
    step = Compiled((twice,), 10, 15 + 120, 15 + 120, 15 + 130, 1)
    section = decided(slowdown=0.02, step=step)
    assert section.compiled == 0.9
    assert section.live + section.peak == max(145 - 40, 15 + 40 + 55)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"passes": 2}, "2 backward passes"),
        ({"graphs": (), "failed": "TypeError: of another release"}, "another release"),
        ({"graphs": ()}, "no compiled graph has a backward pass"),
    ],
)
def test_what_cannot_be_planned(fields, why):
    with pytest.raises(UsageError, match=why):
        decided(step=msgspec.structs.replace(STEP, **fields))
