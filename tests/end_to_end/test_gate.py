"""`dltune gate ab` on real training jobs in two checkouts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import git
from torches import TORCH_PYTHON, needs_torch

from dltune.schemas import gate as doc

# a round starts two jobs: no limit for a slow machine but the budget of rounds
pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(1800)]

JOBS = Path(__file__).parents[1] / "jobs"
EXAMPLES = JOBS.parent.parent / "scripts" / "examples"
CONFIG = """
rounds_per_launch = 2
seconds_per_turn = 0.05
confidence = 0.5
budget = 400
[metrics]
step_time = { ratio = 1.5 }
step_mean = { ratio = 1.5 }
step_cpu = { ratio = 3.0 }
"ops:*Conv2D*" = { at_most = 60.0 }
peak_bytes = { ratio = 1.5 }
startup = { ratio = 20.0 }
context_switches = { at_most = 1e9 }
page_faults = { at_most = 1e9 }
"""
SLOW = "        time.sleep(0.2)\n        record(train_step(*batch))\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    top.mkdir()
    (tmp_path / "temporary").mkdir()
    for name in ("gradient_tape.py", "small_model.py", "arguments.py"):
        shutil.copy(JOBS / name, top)
    job = (top / "gradient_tape.py").read_text()
    (top / "gradient_tape.py").write_text(f"import time\n{job}")
    (top / "gate.toml").write_text(CONFIG)
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "base")
    git(top, "branch", "base")
    return top


def change(project: Path, old: str, new: str) -> None:
    path = project / "gradient_tape.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    git(project, "commit", "-qam", "head")


def gate(project: Path, *job: str) -> subprocess.CompletedProcess[str]:
    return gated(project, sys.executable, "gradient_tape.py", *job)


def gated(project: Path, *command: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "dltune", "gate", "ab", "--base", "base", "--config", "gate.toml",
         "-o", "result.json", "--", *map(str, command)],
        cwd=project,
        env={**os.environ, "TMPDIR": str(project.parent / "temporary")},
        capture_output=True,
        text=True,
        timeout=1500,
    )  # fmt: skip
    assert not list((project.parent / "temporary").iterdir())
    assert git(project, "worktree", "list").count("\n") == 1
    return done


def test_a_slower_step_fails_and_what_did_not_change_passes(project: Path) -> None:
    change(project, "        record(train_step(*batch))\n", SLOW)
    done = gate(project, "--steps", "100000")
    assert done.returncode == 1, done.stderr
    found = doc.load(project / "result.json")
    assert found.kind == "steps"
    outcomes = {(v.metric, v.over): v.outcome for v in found.verdicts}
    assert outcomes["step_time", "ratio"] == outcomes["step_mean", "ratio"] == "fail"
    assert outcomes["peak_bytes", "ratio"] == outcomes["step_cpu", "ratio"] == "pass"
    assert outcomes["ops:*Conv2D*", "value"] == "pass"
    measured = {one.metric: one.values for one in found.measured["head"]}
    assert min(measured["step_time"]) > 0.2
    assert 0 < min(measured["ops:*Conv2D*"]) < min(measured["step_time"])
    assert min(measured["startup"]) > 0.1
    assert min(measured["context_switches"]) > 0
    assert len(set(map(len, measured.values()))) == 1
    slower = {(one.kind, one.what): one for one in found.slower}
    line = slower["python", "gradient_tape.py:14 (<module>)"]
    assert line.changed
    for one in (slower["part", "python"], line):
        # the sleep of one step, which is most of it, and not of a turn of five
        assert one.head - one.base > 0.1
        assert one.head < 3 * max(measured["step_mean"])
    assert "gradient_tape.py:14" in done.stdout


def test_a_job_that_ends_early_in_one_checkout(project: Path) -> None:
    change(project, ".take(args.steps)", ".take(20)")
    done = gate(project, "--steps", "100000")
    assert done.returncode == 2, done.stderr
    assert "in head (HEAD, " in done.stderr
    assert "trained" in done.stderr
    assert "under head" not in done.stderr, "a setting of a bench"
    assert not (project / "result.json").exists()


def test_a_job_that_trains_in_one_checkout_only(project: Path) -> None:
    change(project, "import time\n", "raise SystemExit(0)\n")
    done = gate(project, "--steps", "100000")
    assert done.returncode == 2, done.stderr
    assert "in head (HEAD, " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_baseline_of_a_training_job(project: Path) -> None:
    job = ("--", sys.executable, "gradient_tape.py", "--steps", "100000")
    common = ("--config", "gate.toml")
    dltune = [sys.executable, "-m", "dltune", "gate"]
    done = subprocess.run(
        [*dltune, "record", *common, "-o", "b.json", "--rounds", "3", *job],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    made = doc.load_baseline(project / "b.json")
    assert made.kind == "steps"
    assert made.commit == git(project, "rev-parse", "HEAD").strip()
    measured = {one.metric: len(one.values) for one in made.measured}
    assert measured == dict.fromkeys(
        ("step_time", "step_mean", "step_cpu", "ops:*Conv2D*", "peak_bytes", "startup",
         "context_switches", "page_faults"), 3,
    )  # fmt: skip
    assert made.missing == {}


@pytest.mark.proof
@needs_torch
def test_an_op_that_a_pytorch_job_got_is_named(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    job = (EXAMPLES / "train_torch_mlp.py").read_text()
    (project / "train.py").write_text(job)
    (project / "gate.toml").write_text(
        "rounds_per_launch = 2\nconfidence = 0.5\nbudget = 400\n"
        "[metrics]\nstep_time = { ratio = 1.5 }\n"
    )
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-qm", "base")
    git(project, "branch", "base")
    sorts = "        torch.sort(features.flatten())\n        loss.backward()\n"
    (project / "train.py").write_text(job.replace("        loss.backward()\n", sorts))
    git(project, "commit", "-qam", "head")
    done = gated(project, TORCH_PYTHON, "train.py", "--steps", 100_000_000)
    assert done.returncode == 1, done.stderr
    found = doc.load(project / "result.json")
    assert any("aten::sort" in one.what for one in found.slower), found.slower
