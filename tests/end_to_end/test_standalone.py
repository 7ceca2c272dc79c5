"""A real profile's ops, run standalone: they come back under their own keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dltune.schemas import graph
from dltune.schemas import profile as documents
from dltune.schemas.profile import Profile

pytestmark = pytest.mark.tensorflow

NOTHING = ("_Arg", "_Retval", "Const", "Identity", "NoOp")


def profile(output: Path, *arguments: object) -> Profile:
    command = [sys.executable, "-m", "dltune", "profile", "--steps", "3", "-o", output, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return documents.load(output)


def test_ops_come_back_under_their_keys_and_at_another_batch_size(profiled, tmp_path):
    source = profiled("gradient_tape").output
    whole = documents.load(source)
    measured = {op.key for op in whole.ops if op.times and op.type not in NOTHING}
    again = profile(tmp_path / "again.json", "--ops-of", source)
    ran = {op.key for op in again.ops if op.times}
    heavy = {
        op.key
        for op in whole.ops
        if op.times and any(part in op.type for part in ("Conv2D", "MatMul", "Pool", "Relu"))
    }
    assert heavy
    assert heavy <= ran
    assert not any("rewrote" in note for note in again.notes), again.notes
    assert any(f"of {len(measured)} ops ran standalone" in note for note in again.notes)
    assert all(op.count == 1 for op in again.ops if op.key in heavy)

    larger = profile(tmp_path / "larger.json", "--ops-of", source, "--batch", "48")
    firsts = {
        graph.parse_key(op.key).inputs[0].shape[0]
        for op in larger.ops
        if op.times and op.type.endswith(("Conv2D", "MaxPool"))
    }
    assert firsts == {48}
