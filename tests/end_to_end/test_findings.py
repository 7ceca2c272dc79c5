"""What is found on the profile of a real Keras job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dltune.analysis.step_parts import pieces
from dltune.schemas import profile as documents

pytestmark = pytest.mark.tensorflow

JOB = Path(__file__).parents[1] / "jobs" / "normalised.py"


def dltune(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_batch_norm_is_found_and_other_norms_are_not(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    told = dltune("profile", "--steps", 3, "-o", file, "--", sys.executable, JOB)
    profile = documents.load(file)
    step = profile.steps[0]
    (image,) = pieces(step, profile.ops)  # no fused kernel takes the norm of a dense layer
    assert image.bytes == 32 * 24 * 24 * 16 * 4
    assert image.gradient
    names = {step.nodes[index].name for index in image.nodes}
    assert not any("layer_norm" in name or "group_norm" in name for name in names)
    assert "Batch norm is not fused: 1 layer runs as" in told
    found = json.loads(dltune("show", "--json", file))["findings"]
    (batch_norm,) = (one for one in found if one["cause"] == "batch-norm-in-pieces")
    assert 0 <= batch_norm["gain"]["low"] <= batch_norm["gain"]["high"] <= 1
    assert "fused" in dltune("show", file)
