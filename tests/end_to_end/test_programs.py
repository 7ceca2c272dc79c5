"""Programs that nobody here wrote: each is profiled, planned for and run, as it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from profiled_jobs import profile
from running import interrupted
from tensorflows import ROOT
from torches import TORCH_PYTHON, needs_torch

from dltune.system import topology

sys.path.append(str(ROOT / "scripts" / "bench"))
from bench_torch_programs import PROGRAMS, command

pytestmark = [pytest.mark.tensorflow, needs_torch]

STEPPING = 5.0  # seconds under the plan, of steps of milliseconds
BY_NAME = {
    program["name"]: program
    for program in tomllib.loads((PROGRAMS / "programs.toml").read_text())["program"]
}


def job(name: str, folder: Path) -> list[str]:
    """Its command in the environment of PyTorch's tests."""
    if not list(TORCH_PYTHON.parent.glob(f"../lib/python*/site-packages/{name}")):
        pytest.skip(f"no {name} for {TORCH_PYTHON}: make .venv-torch installs it")
    return command(BY_NAME[name], folder, TORCH_PYTHON.parent)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["pykeen", "skorch"])
def test_a_program_of_others(name: str, tmp_path: Path) -> None:
    started = job(name, tmp_path)
    done = profile(tmp_path, started)
    measured = done.profile
    assert (measured.framework.name, measured.partial) == ("pytorch", None)
    counts = {time.threads for op in measured.ops for time in op.times}
    assert counts >= {1, len(topology.local().cores)}
    plan, outcome, told = tmp_path / "plan.json", tmp_path / "outcome.json", tmp_path / "stderr"
    dltune = [sys.executable, "-m", "dltune"]
    made = [*dltune, "plan", done.output, "--strategy", "per-type", "-o", plan]
    subprocess.run(list(map(str, made)), check=True, capture_output=True, timeout=550)
    run = [*dltune, "run", "--json", outcome, "--plan", plan, "--", *started]
    with (
        told.open("w") as stderr,
        subprocess.Popen(list(map(str, run)), stdout=stderr, stderr=stderr) as running,
    ):
        try:
            until = time.monotonic() + 240
            while "the plan is in force" not in told.read_text():
                assert running.poll() is None, told.read_text()
                assert time.monotonic() < until, told.read_text()
                time.sleep(0.05)
            time.sleep(STEPPING)
        finally:
            interrupted(running)
    (process,) = json.loads(outcome.read_text())["sections"]["threads"]
    assert process["steps"] > 0, told.read_text()
