"""The raw-values file is pyperf's: its own tools read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyperf
import pytest

from dltune.base.errors import UsageError
from dltune.bench import step_times
from dltune.bench.step_times import encode

CIRCUMSTANCES = {
    "cpu_model": "Some CPU",
    "cores": 2,
    "framework": "TensorFlow 2.21.0",
    "plan": "plan.json",
    "command": ("python", "train.py", "--name", "two words"),
}
RECOMMENDED = [[0.351, 0.349, 0.350], [0.352, 0.348, 0.350], [0.353]]
PLANNED = [[0.312, 0.311], [], [0.313, 0.312]]


def pyperf_says(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pyperf", *args], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bench.json"
    path.write_bytes(encode({"recommended": RECOMMENDED, "plan": PLANNED}, **CIRCUMSTANCES))
    return path


def test_every_value_comes_back_by_setting_and_turn(file: Path) -> None:
    suite = pyperf.BenchmarkSuite.load(str(file))
    assert suite.get_benchmark_names() == ["recommended", "plan"]
    turns = [list(run.values) for run in suite.get_benchmark("recommended").get_runs()]
    assert turns == RECOMMENDED
    turns = [list(run.values) for run in suite.get_benchmark("plan").get_runs()]
    assert turns == [turn for turn in PLANNED if turn]


def test_the_circumstances_are_kept(file: Path) -> None:
    metadata = pyperf.BenchmarkSuite.load(str(file)).get_benchmark("plan").get_metadata()
    assert metadata["cpu_model_name"] == "Some CPU"
    assert metadata["cpu_count"] == 2
    assert metadata["command"] == "python train.py --name 'two words'"
    assert metadata["plan"] == "plan.json"
    assert metadata["framework"] == "TensorFlow 2.21.0"


def test_pyperf_show_reads_it(file: Path) -> None:
    shown = pyperf_says("show", str(file))
    assert "recommended" in shown
    assert "350 ms" in shown


def test_pyperf_compare_to_finds_the_faster_file(file: Path, tmp_path: Path) -> None:
    faster = tmp_path / "faster.json"
    halved = [[value / 2 for value in turn] for turn in RECOMMENDED]
    faster.write_bytes(encode({"recommended": halved}, **CIRCUMSTANCES))
    assert "2.00x faster" in pyperf_says("compare_to", str(file), str(faster))


def test_a_setting_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="'plan' has no step"):
        encode({"plan": [[], []]}, **CIRCUMSTANCES)


def test_without_pyperf_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pyperf, which is not installed") as caught:
        step_times.require_pyperf()
    assert "dltune[bench]" in str(caught.value.remedy)
