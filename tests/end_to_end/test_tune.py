"""`dltune tune` on a real TensorFlow job: settings change its pauses, and some of them end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import remaining, with_argument
from settings_plans import section

from dltune.schemas.settings import Choice, Effect, SettingsPlan

pytestmark = pytest.mark.tensorflow

JOBS = Path(__file__).parents[1] / "jobs"
KEPT = Choice("onednn_primitives", "kept")


def job(folder: Path, *arguments: object) -> list[str]:
    """A command that only this test has in its processes."""
    link = folder / "moody.py"
    if not link.exists():
        link.symlink_to(JOBS / "moody.py")
    return [sys.executable, str(link), *map(str, arguments)]


def tune(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dltune", "tune", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(JOBS)},
    )


def effect(found: SettingsPlan, setting: str) -> Effect:
    return next(e for e in found.effects if e.choices[0].setting == setting)


@pytest.mark.timeout(1800)  # as long as its budget, on a machine that starts jobs slowly
def test_what_helps_is_chosen_and_what_crashes_or_hangs_costs_its_round(tmp_path: Path) -> None:
    names = "xla,onednn_caller,onednn_primitives"
    options = ("--only", names, "--budget", "25m", "--wait", "120")
    found = tune(tmp_path, *options, "--", *job(tmp_path))
    out, err = found.communicate(timeout=1700)
    assert found.returncode == 0, err
    made = section(tmp_path / "plan.json")
    assert made.chosen == (KEPT,), err
    assert made.whole is not None
    assert made.whole.high is not None
    assert made.whole.high < 1
    assert effect(made, "onednn_primitives").verdict == "helps"
    crashed, hung = effect(made, "xla"), effect(made, "onednn_caller")
    assert crashed.verdict == "failed"
    assert "this job cannot stand XLA" in crashed.why
    assert hung.verdict == "failed"
    assert "no message for" in hung.why
    assert "chosen: onednn_primitives=kept" in out
    assert made.partial is None
    assert not remaining(with_argument, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moody.py", "plan.json"]


@pytest.mark.timeout(1800)
def test_interrupted_and_taken_up(tmp_path: Path) -> None:
    options = ("--only", "onednn_primitives,xla", "--budget", "25m")
    found = tune(tmp_path, *options, "--", *job(tmp_path))
    assert found.stderr is not None
    for line in found.stderr:
        if "kept against the job as found: helps" in line:
            found.send_signal(signal.SIGINT)
            break
    out, err = found.communicate(timeout=240)
    assert found.returncode == 128 + signal.SIGINT, err
    assert not remaining(with_argument, tmp_path)
    made = section(tmp_path / "plan.json")
    assert made.partial == "interrupted"
    assert made.chosen == (KEPT,)
    assert made.whole is None
    assert "incomplete result" in out
    assert (tmp_path / "plan.tune.json").exists()

    again = tune(tmp_path, *options, "--resume", "--", *job(tmp_path))
    out, err = again.communicate(timeout=1700)
    assert again.returncode == 0, err
    made = section(tmp_path / "plan.json")
    assert made.partial is None
    assert made.chosen == (KEPT,)
    assert made.whole is not None
    assert not (tmp_path / "plan.tune.json").exists()


def test_a_job_that_ends_too_early(tmp_path: Path) -> None:
    found = tune(tmp_path, "--only", "onednn_primitives", "--", *job(tmp_path, "--steps", 4))
    out, err = found.communicate(timeout=550)
    assert found.returncode == 2, err
    assert "let the job train for more steps" in err
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "plan.json").exists()


def test_a_budget_too_small_for_one_trial(tmp_path: Path) -> None:
    options = ("--only", "onednn_primitives", "--budget", "2s")
    found = tune(tmp_path, *options, "--", *job(tmp_path))
    out, err = found.communicate(timeout=550)
    assert found.returncode == 2, err
    assert "does not suffice for one trial" in err
    assert "--budget" in err
    assert out == ""
    assert not remaining(with_argument, tmp_path)
