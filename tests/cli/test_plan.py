"""`dltune plan` as a person meets it: exit codes, what is printed, what is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.plan.plan import load_plan
from dltune.schemas.profile import Profile


def dltune(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "plan", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def write(folder: Path, profile: Profile | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "profile.json"
    profile = profile or synthetic.network(synthetic.machine(2), layers=3, span=0.02)
    path.write_bytes(msgspec.json.encode(profile))
    return path


def refused(done: subprocess.CompletedProcess[str], *told: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for part in told:
        assert part in done.stderr


def test_the_plan_stands_beside_the_profile(tmp_path: Path) -> None:
    done = dltune(write(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "predicted time per round (one run of each training step), by strategy"
    assert [line.split()[0] for line in lines[2:5]] == ["default", "recommended", "uniform"]
    assert sum(line.endswith("chosen") for line in lines) == 1
    assert "calibrated to the job's run" in done.stderr
    assert "note: the smt strategy does not apply" in done.stderr
    assert "note: note: " not in done.stderr
    plan = load_plan(tmp_path / "plan.json")
    assert plan.cores == 2
    assert plan.signatures == ("signature-train",)


def test_the_planner_s_name_may_be_given(tmp_path: Path) -> None:
    done = dltune("threads", write(tmp_path), "-o", tmp_path / "mine.json")
    assert done.returncode == 0, done.stderr
    assert load_plan(tmp_path / "mine.json").sections["threads"]


def test_an_existing_plan_stays_unless_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "plan.json").write_text("mine")
    refused(dltune(path), "plan.json already exists")
    assert (tmp_path / "plan.json").read_text() == "mine"
    assert dltune(path, "--overwrite").returncode == 0


def test_into_a_plan_that_exists(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert dltune(path).returncode == 0
    done = dltune(path, "--into", tmp_path / "plan.json", "--strategy", "per-type+co-run")
    assert done.returncode == 0, done.stderr
    plan = load_plan(tmp_path / "plan.json")
    assert plan.sections["threads"].strategy == "per-type+co-run"
    assert plan.sections["threads"].ops


def test_json_is_all_of_stdout(tmp_path: Path) -> None:
    done = dltune(write(tmp_path), "--json")
    table = json.loads(done.stdout)
    assert table["strategy"] in [row["setting"] for row in table["predictions"]]
    assert table["output"] == str(tmp_path / "plan.json")


@pytest.mark.parametrize(
    "strategy", ["per-op", "per-type", "per-op+co-run", "per-type+co-run", "uniform"]
)
def test_a_strategy_can_be_asked_for(tmp_path: Path, strategy: str) -> None:
    done = dltune(write(tmp_path), "--strategy", strategy)
    assert done.returncode == 0, done.stderr
    plan = load_plan(tmp_path / "plan.json")
    assert plan.sections["threads"].strategy.startswith(strategy)
    assert plan.sections["threads"].corun == ("co-run" in strategy)


def test_settings_for_plain_jobs(tmp_path: Path) -> None:
    path = write(tmp_path)
    shell = dltune(path, "--emit", "env", "--overwrite").stdout
    shown = subprocess.run(
        ["bash", "-c", f"{shell}\necho $TF_NUM_INTRAOP_THREADS"], capture_output=True, text=True
    )
    assert shown.stdout.strip() in ("1", "2")
    compile(dltune(path, "--emit", "tf.config", "--overwrite").stdout, "snippet", "exec")
    yaml = dltune(path, "--emit", "yaml", "--overwrite").stdout
    assert 'cpus: "0-1"' in yaml
    refused(
        dltune(path, "--emit", "torch", "--overwrite"), "--emit torch", "env or tf.config or yaml"
    )


def test_explain_an_op_by_type_key_or_part(tmp_path: Path) -> None:
    path = write(tmp_path)
    told = dltune(
        path, "--explain", "Conv2D", "--strategy", "per-type+co-run", "--overwrite"
    ).stdout
    for part in ("per-op:", "per-type:", "plan (per-type+co-run):", "co-run chooses at run time"):
        assert part in told
    assert "the framework's thread pool runs this op" in (
        dltune(path, "--explain", "mul(", "--strategy", "per-type", "--overwrite").stdout
    )
    assert "not planned" in dltune(path, "--explain", "IteratorGetNext", "--overwrite").stdout
    elsewhere = dltune(path, "--machine", "knl-7250", "--explain", "Apply", "--overwrite").stdout
    assert "threads: no other count is allowed" in elsewhere
    refused(
        dltune(path, "--explain", "Conv9D", "-o", tmp_path / "other.json"),
        "--explain Conv9D: no op has this key or type",
    )
    assert not (tmp_path / "other.json").exists()


def test_bitwise_keeps_the_job_s_own_threads(tmp_path: Path) -> None:
    done = dltune(write(tmp_path), "--bitwise")
    assert done.returncode == 0, done.stderr
    plan = load_plan(tmp_path / "plan.json")
    assert plan.sections["threads"].uniform.intra == 2
    assert {op.threads for op in plan.sections["threads"].ops} <= {2}


def test_cores_can_be_fewer(tmp_path: Path) -> None:
    path = write(tmp_path)
    for cores in ("1", "0,", "0-0"):
        done = dltune(path, "--cores", cores, "--overwrite")
        assert done.returncode == 0, done.stderr
        assert load_plan(tmp_path / "plan.json").cores == 1


def test_a_machine_that_is_not_at_hand(tmp_path: Path) -> None:
    done = dltune(write(tmp_path), "--machine", "knl-7250")
    assert done.returncode == 0, done.stderr
    plan = load_plan(tmp_path / "plan.json")
    assert plan.cores == 68
    machine = tmp_path / "machine.json"
    machine.write_bytes(msgspec.json.encode(synthetic.machine(8, name="eight")))
    done = dltune(tmp_path / "profile.json", "--machine", machine, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert "assumes that a core of eight is as fast" in done.stderr


def test_a_partial_profile_is_planned_with_a_sentence(tmp_path: Path) -> None:
    profile = synthetic.network(synthetic.machine(2), layers=2, partial="the job was killed")
    done = dltune(write(tmp_path, profile))
    assert done.returncode == 0
    assert "the profile is incomplete: the job was killed" in done.stderr


def test_wrong_input_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    path = write(tmp_path)
    refused(dltune(tmp_path / "missing.json"), "cannot read", "No such file")
    refused(dltune(path, "--cores", "0"), "--cores 0", "offers 2 cores")
    refused(dltune(path, "--cores", "3"), "--cores 3", "offers 2 cores")
    refused(dltune(path, "--cores", "0-5"), "core 2-5 does not exist", "cores from 0 to 1")
    refused(dltune(path, "--cores", "x"), "neither a count nor a list")
    refused(dltune(path, "--machine", "knl-725"), "did you mean knl-7250")
    refused(dltune(path, "--strategy", "s9"), "s9")
    refused(dltune(path, "--strategy", "per-type+co-run+smt"), "the smt strategy does not apply")
    refused(dltune(path, "--bitwise", "--strategy", "per-type"), "--bitwise forbids")
    refused(dltune(path, "-o", path), "is an input of the plan")
    refused(dltune(path, "-o", tmp_path / "no" / "plan.json"), "cannot write")
    refused(dltune(path, "-o", "a", "--into", "b"), "-o and --into")
    refused(dltune(path, "--emit", "env", "--json"), "--json and --emit")
    refused(dltune(path, "--into", path), "is an input of the plan")
    other = write(tmp_path.parent / f"{tmp_path.name}-other")
    refused(dltune(path, "--into", other), "is a dltune.profile file")
    refused(dltune(), "Usage")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["profile.json"]


def test_a_profile_without_thread_samples_is_refused(tmp_path: Path) -> None:
    there = synthetic.machine(2)
    ops = [synthetic.op("Conv2D", None, there)]
    profile = synthetic.profile(there, ops, {"train": [synthetic.node("a_0", 0)]})
    refused(
        dltune(write(tmp_path, profile)), "no op times by thread count", "profile the job again"
    )
    assert not (tmp_path / "plan.json").exists()


def test_without_a_compiler_planning_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dltune", "plan", str(write(tmp_path))],
        capture_output=True,
        text=True,
        env={**os.environ, "CXX": "/bin/false", "DLTUNE_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 1
    assert "the simulator could not be built" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "plan.json").exists()
