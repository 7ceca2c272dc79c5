"""The symptom bench: its registry is whole, and speeds are those that jobs tell."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import bench_symptoms
from symptoms import BESIDE, FOLDER, Setting, Symptom, healthy, symptoms
from symptoms.speed import _resident, speed

CAUSES = [
    "threads-over-quota",
    "narrow-affinity",
    "too-many-threads",
    "too-few-threads",
    "crowded-processes",
    "ranks-on-one-core",
    "onednn-off",
    "reference-kernel",
    "slow-store",
    "python-input",
    "sequential-map",
    "allocator-trim",
    "spinning-thread",
    "recompiling",
    "retracing",
    "host-reads",
    "tiny-steps",
    "float64",
    "denormals",
    "growing-memory",
    "memory-pressure",
    "neighbour",
    "checkpoints",
    "validation",
    "loader-wait",
]
SYMPTOMS = symptoms()


def test_each_cause_has_a_symptom() -> None:
    assert {one.cause for one in SYMPTOMS.values()} == set(CAUSES)


@pytest.mark.parametrize("symptom", SYMPTOMS.values(), ids=SYMPTOMS)
def test_a_symptom_is_whole(symptom: Symptom) -> None:
    assert symptom.source.startswith("https://")
    assert symptom.by in ("plan", "line", "machine")
    assert symptom.fixed != symptom.complaint
    text = symptom.complaint.job.read_text()
    assert "dltune" not in text, "a job knows nothing of what looks at it"
    ast.parse(text)
    ast.parse(symptom.fixed.text())


def test_every_job_belongs_to_a_symptom() -> None:
    jobs = {one.complaint.job.name for one in SYMPTOMS.values()}
    apart = {"__init__.py", "circumstances.py", "speed.py", *BESIDE}
    assert {path.name for path in FOLDER.glob("*.py")} == jobs | apart


def test_healthy_jobs_are_there() -> None:
    jobs = healthy()
    assert len(jobs) == 20
    assert all(Path(path).exists() for _, path, *_ in jobs)
    assert len({tuple(job) for job in jobs}) == len(jobs)


def test_a_line_that_is_not_there_is_not_replaced() -> None:
    setting = dataclasses.replace(SYMPTOMS["retracing"].complaint, edit=("no such line", ""))
    with pytest.raises(ValueError, match="'no such line' 0 times"):
        setting.text()


def test_an_edited_job_finds_what_it_imports(tmp_path: Path) -> None:
    path = SYMPTOMS["retracing"].fixed.written(tmp_path)
    assert path.parent == tmp_path
    assert "tf.constant(number)" in path.read_text()
    assert all((tmp_path / name).exists() for name in BESIDE)


JOB = """
import itertools, sys
sys.path.insert(0, {folder!r})
import clock
seconds = itertools.count()
clock.time.perf_counter = lambda: float(next(seconds))
told = clock.Clock()
while True:
    told.step(0.5, 4)
"""


def test_a_jobs_speed_is_what_its_clock_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps a second by a clock that goes on with each; a MiB more at each look."""
    sizes = itertools.count(5 << 20, 1 << 20)
    monkeypatch.setattr("symptoms.speed._resident", lambda _: next(sizes))
    job = tmp_path / "job.py"
    job.write_text(JOB.format(folder=str(FOLDER)))
    found = speed([sys.executable, str(job)], {}, 2.0)
    assert (found.rate, found.growth) == (4.0, 1 << 20)


GROWS = """
import sys
for size in (0, 64):
    held = bytearray(size << 20)
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_memory_is_that_of_all_that_a_job_has_started() -> None:
    command = ["sh", "-c", '"$@"; :', "sh", sys.executable, "-c", GROWS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    sizes = []
    with subprocess.Popen(command, text=True, **pipes) as job:
        assert job.stdin
        assert job.stdout
        for _ in range(2):
            assert job.stdout.readline() == "ready\n"
            sizes.append(_resident(job.pid))
            print(file=job.stdin, flush=True)
    assert sizes[1] - sizes[0] == pytest.approx(64 << 20, abs=8 << 20)


def test_a_job_that_tells_nothing_is_an_error_with_its_words(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("print('no such file')")
    with pytest.raises(RuntimeError, match="no such file"):
        speed([sys.executable, str(job)], {}, 2.0)


def test_what_was_found_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"before": 10.0, "fixed": 30.0, "planned": None, "error": None, "first": None}
    told = {"symptom": "retracing", "expected": "retracing", **figures}
    lines = [
        {**told, "causes": ["retracing", "float64"]},
        {**told, "causes": ["float64"]},
        {"healthy": "train.py", "causes": [], "error": None},
        {"healthy": "train.py", "causes": ["float64"], "error": None},
    ]
    file = tmp_path / "found.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    bench_symptoms.tell(bench_symptoms.read(file), SYMPTOMS)
    said = capsys.readouterr().out
    assert "retracing 1/2, float64 | 10.0 steps/s | (line) | 30.0 (3.00x)" in said
    assert "names the cause 1 times of 2" in said
    assert "1 healthy jobs, 2 runs: 1 with a false finding" in said


def test_a_setting_without_an_edit_runs_as_it_is(tmp_path: Path) -> None:
    setting = Setting(FOLDER / "retracing.py")
    assert setting.written(tmp_path) == setting.job
    assert not list(tmp_path.iterdir())
