"""A PyTorch job under a plan for less memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from profiled_jobs import JOBS, Done, profile
from torches import TORCH_PYTHON, needs_torch

pytestmark = [pytest.mark.tensorflow, needs_torch]

JOB = [TORCH_PYTHON, JOBS / "torch_conv.py"]
STEPS = 40


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dltune", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=550)


def test_a_job_in_less_memory(tmp_path: Path) -> None:
    plan, plain = tmp_path / "plan.json", tmp_path / "plain"
    profiled: Done = profile(tmp_path, JOB)
    command = [*JOB, "--steps", STEPS, "--losses", plain]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=550)
    planned = dltune("plan", "memory", profiled.output, "--smallest", "-o", plan)
    assert planned.returncode == 0, planned.stderr
    assert "predicted peak of the framework's allocator" in planned.stdout
    shown = dltune("show", plan)
    assert "recomputed results" in shown.stdout
    # an epoch has 16 steps, and its loader draws a seed before the first
    job = [*JOB, "--steps", STEPS, "--losses", tmp_path / "losses"]
    outcome = tmp_path / "outcome.json"
    done = dltune("run", "--json", outcome, "--plan", plan, "--", *job)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "losses").read_text().splitlines() == plain.read_text().splitlines()
    section = json.loads(plan.read_text())["sections"]["memory"]
    memory = json.loads(outcome.read_text())["sections"]["memory"]
    (process,) = memory["processes"]
    assert memory["left"] == []
    assert (process["again"], process["steps"]) == (
        len(section["order"]) - len(section["nodes"]),
        STEPS - 1,
    )
    assert section["peak"] < section["before"]
    assert process["peak"] < section["live"] + section["before"]
