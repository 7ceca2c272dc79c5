"""A plan's settings on a real Keras job: run, profiled, planned and run again, benched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from settings_plans import written
from tensorflows import THIS_AND_PROOF

from dltune.plan.plan import load_plan, with_sections
from dltune.schemas import bench as benches
from dltune.schemas import profile as profiles
from dltune.schemas.plan import Prediction, Threads, Uniform

pytestmark = pytest.mark.tensorflow

SCRIPT = str(Path(__file__).parents[1] / "jobs" / "normalised_fit.py")
JOB = (sys.executable, SCRIPT)
CHOSEN = {
    "batch_norm": "fused",
    "onednn": "on",
    "onednn_primitives": "kept",
    "allocator": "glibc-keep",
}
VARIABLES = {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE": "false"}


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Its environment leaves oneDNN to the plan."""
    return subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=550,
        env={name: value for name, value in os.environ.items() if name not in VARIABLES},
    )


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return written(tmp_path / "plan.json", JOB, *CHOSEN.items())


def plain(*job: str) -> dict:
    done = subprocess.run([*job, "--steps", "3"], capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("python", THIS_AND_PROOF)
def test_run_applies_them_to_the_job_alone(plan: Path, tmp_path: Path, python: str) -> None:
    before = dict(os.environ)
    outcome = tmp_path / "outcome.json"
    job = (python, SCRIPT)
    done = dltune("run", "--plan", plan, "--json", outcome, "--", *job, "--steps", 3)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: found["environment"][name] for name in VARIABLES} == VARIABLES
    assert "mmap_threshold" in found["environment"]["GLIBC_TUNABLES"]
    assert dict(os.environ) == before
    assert "settings: batch_norm=fused, onednn=on" in done.stderr
    told = json.loads(outcome.read_bytes())["sections"]["settings"]
    assert told["not_in_force"] == []
    assert [choice["setting"] for choice in told["applied"]] == list(CHOSEN)
    assert [(hook["setting"], hook["count"]) for hook in told["acted"]] == [("batch_norm", 2)]
    assert found["loss"] == pytest.approx(plain(*job)["loss"], rel=1e-3)


def test_profiled_planned_and_run_together(plan: Path, tmp_path: Path) -> None:
    profile, both = tmp_path / "profile.json", tmp_path / "both.json"
    done = dltune("profile", "--plan", plan, "--steps", 3, "-o", profile, "--", *JOB)
    assert done.returncode == 0, done.stderr
    measured = profiles.load(profile)
    assert measured.under is not None
    assert {choice.setting: choice.value for choice in measured.under.chosen} == CHOSEN
    kinds = {op.type for op in measured.ops}
    assert any("FusedBatchNorm" in kind for kind in kinds)

    done = dltune("plan", profile, "-o", both)
    assert done.returncode == 0, done.stderr
    planned = load_plan(both)
    assert planned.sections["settings"] == measured.under
    done = dltune("plan", profile, "--into", plan)  # and into the plan that it came from
    assert done.returncode == 0, done.stderr
    assert "unlike the profiled job" not in done.stderr
    assert load_plan(plan).sections["settings"] == measured.under

    done = dltune("run", "--plan", both, "--", *JOB, "--steps", 40)
    assert done.returncode == 0, done.stderr
    assert "the plan is in force from now on" in done.stderr
    assert "as far as it applies" not in done.stderr
    assert "batch_norm=fused" in done.stderr
    done = dltune("run", "--plan", both, "--dry-run")
    assert "settings: batch_norm=fused" in done.stdout

    bench = tmp_path / "bench.json"
    done = dltune(
        *("bench", "--plan", both, "--against", "default,plan", "--no-one-core", "--rounds", 2),
        *("--seconds-per-turn", 0.1, "-o", bench, "--", *JOB),
    )
    assert done.returncode == 0, done.stderr
    made = benches.load(bench)
    assert made.partial is None
    assert [(setting.name, len(setting.turns)) for setting in made.settings] == [
        ("default", 2),
        ("plan", 2),
    ]
    assert made.settings[0].predicted is None
    assert {c.setting: c.value for c in made.settings[1].choices} == CHOSEN


def test_a_plan_of_settings_alone_is_benched(plan: Path, tmp_path: Path) -> None:
    bench = tmp_path / "bench.json"
    done = dltune(
        *("bench", "--plan", plan, "--against", "as-found,plan", "--no-one-core", "--rounds", 2),
        *("--seconds-per-turn", 0.1, "-o", bench, "--", *JOB),
    )
    assert done.returncode == 0, done.stderr
    assert [len(setting.turns) for setting in benches.load(bench).settings] == [2, 2]


def test_settings_in_a_plan_of_one_setting_for_all_ops_are_run_and_benched(
    plan: Path, tmp_path: Path
) -> None:
    """As `dltune tune --into` leaves it: the settings make another graph than was planned for."""
    one = Prediction("uniform 2x1", 0.01, 1.0, 1.0)
    section = Threads(one.setting, Uniform(2, 1), False, False, 0.0, (), (one,))
    whole = with_sections(load_plan(plan), threads=section)
    made = msgspec.structs.replace(whole, signatures=("before",))
    plan.write_bytes(msgspec.json.encode(made))
    done = dltune("run", "--plan", plan, "--", *JOB, "--steps", 40)
    assert done.returncode == 0, done.stderr
    assert "in force from now on, in the step's graph under its settings" in done.stderr
    bench = tmp_path / "bench.json"
    done = dltune(
        *("bench", "--plan", plan, "--against", "as-found,plan", "--no-one-core", "--rounds", 2),
        *("--seconds-per-turn", 0.1, "-o", bench, "--", *JOB),
    )
    assert done.returncode == 0, done.stderr
    assert [len(setting.turns) for setting in benches.load(bench).settings] == [2, 2]


def test_apply_says_that_it_cannot(plan: Path) -> None:
    code = f"import dltune; dltune.apply({str(plan)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=550)
    assert "set before the job starts" in done.stderr
