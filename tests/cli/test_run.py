"""`dltune run` as a person meets it where no job runs: what it says it would do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dltune.plan.plan import new_plan
from dltune.schemas.plan import SCHEMA, Candidate, OpPlan, Plan, Prediction, Threads, Uniform
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.system import topology


def dry_run(folder: Path, *, corun: bool) -> dict[str, str]:
    """Threads and handling of each op, for a plan made by hand on a machine of one core more."""
    machine = topology.local()
    cores = len(machine.cores)

    def entry(key: str, serial: float, named: tuple[int, ...] | None) -> OpPlan:
        ways = (Candidate(1, "spread", 1e-3),)
        return OpPlan(key, 1, "spread", 1e-3, serial, named, ways)

    section = Threads(
        strategy="by hand",
        uniform=Uniform(1, 1),
        corun=corun,
        hyperthreads=False,
        small=1e-5,
        ops=(
            entry("Large(float[1])", 1e-3, None),
            entry("Small(float[1])", 1e-6, None),
            entry("Named(float[1])", 1e-3, (0,)),
            entry("Elsewhere(float[1])", 1e-3, (cores,)),
        ),
        predictions=(Prediction("by hand", 1.0, 1.0, 1.0),),
    )
    name = machine.name
    plan = Plan(
        SCHEMA, "2026", "0", "00", "0" * 16, name, cores + 1, None, ("a",), {"threads": section}
    )
    path = folder / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    done = subprocess.run(
        [sys.executable, "-m", "dltune", "run", "--plan", path, "--partial", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if "(float" in line]
    return {words[0].partition("(")[0]: " ".join(words[1:-1]) for words in lines}


@pytest.mark.parametrize("corun", [False, True])
def test_a_dry_run_says_what_happens_to_each_op(tmp_path: Path, corun: bool) -> None:
    told = dry_run(tmp_path, corun=corun)
    assert told["Large"] == ("1 chosen at run time" if corun else "1 0")
    assert told["Small"] == "- not changed: shorter than 1e-05 s"
    assert told["Named"] == "1 0"
    assert told["Elsewhere"] == "- not changed: cores missing"


def test_a_dry_run_says_which_settings_would_be_applied(tmp_path: Path) -> None:
    machine = topology.local()
    choices = (
        Choice("onednn", "on"),
        Choice("precision", "mixed_bfloat16"),
        Choice("onednn_caller", "works"),
        Choice("affinity", "by-rank"),
    )
    section = SettingsPlan(("python", "x.py"), choices, "lossy", None, None, (), (), 1.0, None)
    path = tmp_path / "plan.json"
    made = new_plan(machine, sections={"settings": section})
    path.write_bytes(msgspec.json.encode(made))

    def dry_run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dltune", "run", "--plan", path, "--dry-run", *options],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        )

    refused = dry_run()
    assert refused.returncode == 2
    assert "affinity=by-rank" in refused.stderr
    assert "Traceback" not in refused.stderr
    told = dry_run("--partial")
    assert told.returncode == 0, told.stderr
    assert "settings: precision=mixed_bfloat16, onednn_caller=works" in told.stdout
    assert "lossy settings, which change the job's results: precision" in told.stdout
    assert "onednn=on: already set (TF_ENABLE_ONEDNN_OPTS=0 in the env" in told.stdout
    assert "affinity=by-rank" in told.stdout


def test_settings_from_another_machine_are_refused(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(topology.local(), name="another")
    chosen = (Choice("onednn", "on"),)
    section = SettingsPlan(("python", "x.py"), chosen, "rounding", None, None, (), (), 1.0, None)
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(new_plan(machine, sections={"settings": section})))
    for verb in (["run"], ["profile", "-o", tmp_path / "p.json"], ["bench"]):
        done = subprocess.run(
            [sys.executable, "-m", "dltune", *verb, "--plan", path, "--", sys.executable, "x.py"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 2, done.stderr
        assert "the plan was made for" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_disabled_dltune_runs_the_job_without_the_plan_and_measures_nothing(
    tmp_path: Path,
) -> None:
    section = SettingsPlan(
        ("python",), (Choice("onednn", "on"),), "rounding", None, None, (), (), 1.0, None
    )
    path = tmp_path / "plan.json"
    path.write_bytes(
        msgspec.json.encode(new_plan(topology.local(), sections={"settings": section}))
    )
    code = "import os, sys; print(os.environ.get('TF_ENABLE_ONEDNN_OPTS')); sys.exit(7)"

    def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "dltune",
                *map(str, arguments),
                "--",
                sys.executable,
                "-c",
                code,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            env={**environment, "DLTUNE_DISABLE": "1"},
        )

    ran = dltune("run", "--plan", path)
    assert (ran.returncode, ran.stdout.strip()) == (7, "None")
    assert "the job runs without the plan" in ran.stderr
    for refused in (
        dltune("run", "--plan", path, "--json", tmp_path / "outcome.json"),
        dltune("bench", "--plan", path),
        dltune("tune"),
        dltune("diagnose"),
    ):
        assert refused.returncode == 2
        assert "DLTUNE_DISABLE=1 is set" in refused.stderr
