"""Tensors leave memory for a file, without a framework: under sanitizers, by real threads."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from native_programs import MEMORY, PACKAGE, THREADS, program, run
from order_lines import VALID, answers, mutated, require_answered

COPIES = Path(__file__).parent / "copies.cc"
PARTS = tuple(sorted((PACKAGE / "systems" / "memory" / "plugin").glob("*.cc")))
LINES = [
    "folder\t/somewhere",
    "run\t00ff\tlayer/Conv2D",
    "offload\t00ff\tlayer/Conv2D\t0\t4",
    "offloaded\t00ff\t0",
    "prefetch\t00ff\t0\t9",
]


@pytest.mark.parametrize("sanitizer", [THREADS, MEMORY])
def test_tensors_leave_for_a_file_and_come_back(tmp_path, sanitizer):
    """Four at a time, of four sizes; the file has room for four of each, and no name. Of those
    that wait the most urgent goes first."""
    _, errors = run(COPIES, sanitizer, tmp_path, 200, parts=PARTS)
    wrong, size, order = re.fullmatch(
        r"(\d+) wrong, (\d+) bytes, order ([\d ]+)\n", errors
    ).groups()
    assert wrong == "0"
    assert int(size) <= 4 * (1 + 4096 + 70001 + 300000) + 1
    assert order == "1 2 2 5 9"
    assert list(tmp_path.iterdir()) == []


def test_why_there_is_no_file_is_told(tmp_path):
    folder = tmp_path / "gone"
    done = subprocess.run(
        [program(COPIES, MEMORY, *PARTS), folder, "1"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert f"cannot make the tensor file in {folder}: No such file" in done.stderr


def test_orders_of_a_sequence_are_understood():
    assert answers(LINES, PARTS) == [""] * len(LINES)
    assert answers(LINES) == [f"unknown order: {line}" for line in LINES]


@pytest.mark.parametrize(
    "line",
    [
        "folder",
        "run\t00ff",
        "run\t00ff\tlayer\t1",
        "run\t00ff\tlayer\\x",
        "offload\t00ff\tlayer\t-1\t4",
        "offload\t00ff\tlayer\t0\tsoon",
        "offloaded\t00ff\t0\t1",
        "prefetch\t00ff\t0",
    ],
)
def test_an_order_of_a_sequence_that_is_not_understood(line):
    assert answers([line], PARTS) == [f"unknown order: {line}"]


@settings(max_examples=60, deadline=None)
@given(mutated([*VALID, *LINES]))
def test_any_text_is_answered(lines):
    """Mutations of a valid conversation, with orders of a sequence."""
    require_answered(lines, PARTS)
