"""`dltune model` and `dltune plan --model` as a person meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import profile_lawful
import pytest

from dltune.plan.plan import load_plan


def dltune(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)], capture_output=True, text=True
    )


def written(folder: Path, name: str = "profile.json", seed: int = 1, **changes: object) -> Path:
    profile = msgspec.structs.replace(profile_lawful.profile(seed=seed), **changes)
    path = folder / name
    path.write_bytes(msgspec.json.encode(profile))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    path = folder / "model"
    done = dltune(
        "model", "train", written(folder), written(folder, "b.json", 2), "-o", path, "--samples", 2
    )
    assert done.returncode == 0, done.stderr
    assert "random forest, trained on 120 ops" in done.stdout
    assert "no event was counted for every op" in done.stdout
    assert "median error on held-out ops; features: " in done.stdout
    return path


def refused(done: subprocess.CompletedProcess[str], *told: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for part in told:
        assert part in done.stderr


def test_evaluate(tmp_path, model):
    test = written(tmp_path, seed=3)
    done = dltune("model", "evaluate", model, test)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[-1] == "input" for row in rows] == [True, False, False, True]
    table = json.loads(dltune("model", "evaluate", model, test, "--json").stdout)
    assert table["regressor"] == "random forest"
    assert [row["ops"] for row in table["cases"]] == [60] * 4


def test_a_plan_from_a_model(tmp_path, model):
    path = written(tmp_path, seed=3)
    done = dltune("plan", path, "--model", model)
    assert done.returncode == 0, done.stderr
    assert "trained on 120 ops) predicts the times of 60 ops; 0 ops lack a sample" in done.stderr
    assert list(load_plan(tmp_path / "plan.json").sections) == ["threads"]


def test_wrong_models_are_told(tmp_path, model):
    path = written(tmp_path)
    nothing = tmp_path / "nothing"
    nothing.write_bytes(b"no model")
    remedy = "dltune model train"
    refused(dltune("plan", path, "--model", nothing), "is not a regression model", remedy)
    refused(dltune("model", "evaluate", tmp_path / "gone", path), "cannot read")
    refused(
        dltune("plan", path, "--model", model, "--machine", "knl-7250"), "valid for one machine"
    )
    profile = profile_lawful.profile()
    other = msgspec.structs.replace(profile.machine, name="another")
    elsewhere = written(tmp_path, "elsewhere.json", machine=other)
    refused(dltune("model", "evaluate", model, elsewhere), "was measured on another")
    refused(dltune("plan", elsewhere, "--model", model), "was measured on another")
    refused(
        dltune("model", "train", path, elsewhere, "-o", tmp_path / "m"),
        "elsewhere.json was measured on another",
        "each machine and framework version",
    )
    bare = [msgspec.structs.replace(op, times=op.times[:1]) for op in profile.ops]
    lacking = written(tmp_path, "lacking.json", ops=tuple(bare))
    refused(dltune("plan", lacking, "--model", model), "no op of", "1 spread, 4 spread")
    refused(dltune("model", "evaluate", model, lacking), "no op of these profiles")
    assert not (tmp_path / "m").exists()
    assert not (tmp_path / "plan.json").exists()


def test_ops_standalone_are_asked_for_rightly(tmp_path):
    path = written(tmp_path)
    out = tmp_path / "out.json"
    asked = ("profile", "-o", out, "--ops-of", path)
    refused(dltune(*asked, "--batch", "16,many"), "many is not a whole number")
    refused(dltune(*asked, "--", "python", "train.py"), "--ops-of cannot be combined with a job")
    refused(dltune("profile", "--batch", "16", "--", "python"), "add --ops-of PROFILE")
    bare = [msgspec.structs.replace(op, times=()) for op in profile_lawful.profile().ops]
    empty = written(tmp_path, "empty.json", ops=tuple(bare))
    refused(dltune("profile", "-o", out, "--ops-of", empty), "no op of this profile can run")
    assert not out.exists()
