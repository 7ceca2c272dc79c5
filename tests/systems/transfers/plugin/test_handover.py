"""Transfers are handed over in order, without a framework: under sanitizers, by real threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from native_programs import MEMORY, PACKAGE, THREADS, run
from order_lines import VALID, answers, mutated, require_answered

HERE = Path(__file__).parent
PARTS = tuple(sorted((PACKAGE / "systems" / "transfers" / "plugin").glob("*.cc")))
# those of handovers.cc
FAULTS = ("none", "cancelled", "failed", "partial", "repeated", "together", "receiver")
LINES = ["window\t1048576", "send\t/job:worker/task:0\tweights/read"]


@pytest.mark.parametrize("runs", [50, pytest.param(1000, marks=pytest.mark.proof)])
@pytest.mark.parametrize("sanitizer", [THREADS, MEMORY])
@pytest.mark.parametrize("fault", FAULTS)
def test_transfers_are_handed_over_in_order_and_never_kept_back(fault, sanitizer, runs):
    """Whatever strikes their runs, and nothing of these is left."""
    _, errors = run(HERE / "handovers.cc", sanitizer, fault, runs, parts=PARTS)
    assert f"{runs} runs, 0 out of order, 0 kept back, 0 left" in errors


@pytest.mark.parametrize("ends", [10, pytest.param(1000, marks=pytest.mark.proof)])
def test_a_process_ends_while_transfers_are_handed_over(ends):
    for moment in range(ends):
        run(HERE / "handovers.cc", MEMORY, "exit", moment, parts=PARTS)


def test_a_handover_is_known_until_its_run_is_over_and_not_stuck_too_soon():
    """2,000 others come meanwhile, none of them over."""
    _, errors = run(HERE / "patience.cc", MEMORY, 0, parts=PARTS)
    assert "stuck at once: 0, looks: 4, known: 1, went: 0" in errors


@pytest.mark.proof
def test_what_waits_for_ever_goes_after_ten_seconds():
    said, errors = run(HERE / "patience.cc", MEMORY, 60, parts=PARTS)
    assert "went: 1" in errors
    assert said.count("transfers waited ten seconds") == 1


def test_a_child_that_is_forked_while_transfers_are_handed_over_ends():
    """200 forks while another thread holds the locks of a handover and of all."""
    _, errors = run(HERE / "forks.cc", MEMORY, 200, parts=PARTS)
    assert "200 forks, 0 hung, 0 failed" in errors


def test_orders_of_transfers_are_understood():
    assert answers(LINES, PARTS) == [""] * len(LINES)
    assert answers(LINES) == [f"unknown order: {line}" for line in LINES]


@pytest.mark.parametrize(
    "line",
    ["window", "window\t-1", "window\t1\t2", "window\t1e6", "send\tworker", "send\t\\x\tweights"],
)
def test_an_order_of_transfers_that_is_not_understood(line):
    assert answers([line], PARTS) == [f"unknown order: {line}"]


@settings(max_examples=60, deadline=None)
@given(mutated([*VALID, *LINES]))
def test_any_text_is_answered(lines):
    """Mutations of a valid conversation, with orders of transfers."""
    require_answered(lines, PARTS)
