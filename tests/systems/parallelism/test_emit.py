"""Files that jobs import: whole, and of nothing but the standard library at import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import parallel_plans
import pytest

from dltune.systems.parallelism.emit import expressed, jax_file, keras_file, torch_file


@pytest.mark.parametrize("emit", [keras_file, jax_file, torch_file])
def test_it_is_imported_without_anything(tmp_path: Path, emit) -> None:
    (tmp_path / "dltune_plan.py").write_text(emit(parallel_plans.conv()))
    code = "import dltune_plan, json; print(json.dumps(dltune_plan.DLTUNE_PLAN))"
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(done.stdout.replace("null", "None")) == expressed(parallel_plans.conv())


@pytest.mark.parametrize("emit", [keras_file, jax_file, torch_file])
def test_every_name_that_it_uses_is_there(tmp_path: Path, emit) -> None:
    (tmp_path / "emitted.py").write_text(emit(parallel_plans.conv()))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F"]
    done = subprocess.run([*command, tmp_path / "emitted.py"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_its_docstring_tells_how_to_use_it() -> None:
    told = ast.get_docstring(ast.parse(jax_file(parallel_plans.conv()))) or ""
    for line in (
        "import dltune_plan as plan",
        "plan.shard(params)",
        "plan.batch",
        "process_allgather",
    ):
        assert line in told
    for emit in (keras_file, torch_file):
        assert "dltune_plan.distribute()" in emit(parallel_plans.conv())
