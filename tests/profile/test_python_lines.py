"""Which line of the job's Python the main thread stands at."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dltune.profile import breakdown
from dltune.profile.breakdown import PythonLines, between_looks, runs_graph
from dltune.system.checks.software import py_spy
from dltune.system.proc import process
from dltune.system.proc.process import Frame, own_line

SITE = "/venv/lib/python3.11/site-packages"
EXECUTE = Frame("quick_execute", f"{SITE}/tensorflow/python/eager/execute.py", 53)
FUNCTION = Frame(
    "call_flat", f"{SITE}/tensorflow/python/eager/polymorphic_function/atomic_function.py", 251
)
SESSION = Frame(
    "BaseSession._call_tf_sessionrun", f"{SITE}/tensorflow/python/client/session.py", 1472
)
TRAIN = Frame("<module>", "/home/user/train.py", 30)
LOAD = Frame("load", "/home/user/train.py", 12)

needs_py_spy = pytest.mark.skipif(py_spy().state != "ok", reason=py_spy().found)


def test_the_innermost_line_of_the_jobs_own():
    assert own_line([LOAD, TRAIN]) == "train.py:12 (load)"


@pytest.mark.parametrize(
    "filename",
    [
        "<frozen importlib._bootstrap>",
        "/usr/lib/python3.11/threading.py",
        "/usr/lib64/python3.11/json/decoder.py",
        f"{SITE}/tensorflow/python/ops/array_ops.py",
        f"{SITE}/keras/src/trainers/trainer.py",
        f"{SITE}/PIL/Image.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/tmp/__autograph_generated_file8hx.py",
        "/opt/dltune/frameworks/pytorch/inject/_dltune_torch_passes.py",
    ],
)
def test_what_is_not_the_jobs_own_is_passed_over(filename):
    assert own_line([Frame("f", filename, 1), LOAD, TRAIN]) == "train.py:12 (load)"
    assert runs_graph([Frame("f", filename, 1), LOAD, TRAIN]) is False


def test_a_job_that_is_an_installed_package_has_its_own_lines():
    package = Frame("fit", f"{SITE}/recommender/fit.py", 7)
    runpy = Frame("_run_code", "/usr/lib/python3.11/runpy.py", 88)
    assert own_line([EXECUTE, FUNCTION, package, runpy]) == "recommender/fit.py:7 (fit)"
    command = Frame("<module>", "/env/bin/pykeen", 8)
    assert own_line([EXECUTE, FUNCTION, package, command]) == "recommender/fit.py:7 (fit)"
    assert own_line([EXECUTE, command]) == "pykeen:8 (<module>)"  # or a script of the job's
    assert own_line([EXECUTE, runpy]) is None
    assert own_line([]) is None


def test_inside_a_graphs_execution():
    assert runs_graph([EXECUTE, FUNCTION, TRAIN])
    assert runs_graph([SESSION, TRAIN])
    before_311 = Frame("_call_tf_sessionrun", SESSION.filename, SESSION.line)
    assert runs_graph([before_311, TRAIN])


def test_python_around_a_graphs_execution_and_eager_ops_are_outside():
    assert not runs_graph([FUNCTION, TRAIN])
    assert not runs_graph([EXECUTE, TRAIN])
    assert not runs_graph([TRAIN])
    assert not runs_graph([])


# a real py-spy and real processes

JOB = """
import time

def nap():
    print("ready", flush=True)
    time.sleep(600)  # line 6

nap()
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A process that sleeps in a known line, until the test ends."""
    monkeypatch.setattr(process, "PATIENCE_SECONDS", 120.0)
    script = tmp_path / "job.py"
    script.write_text(JOB)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        until = time.monotonic() + 120
        while psutil.Process(started.pid).status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < until
            time.sleep(0.01)
        yield started
        started.kill()


def finished(looking: PythonLines, patience: float = 120.0) -> PythonLines:
    until = time.monotonic() + patience
    while not looking.poll():
        assert time.monotonic() < until
        time.sleep(0.01)
    return looking


@needs_py_spy
def test_the_line_that_a_job_sleeps_in(job):
    looking = PythonLines(job.pid, 0.05, looks=5)
    looking.start()
    (line,) = finished(looking).lines()
    assert (line.where, line.share) == ("job.py:6 (nap)", 1.0)
    assert looking.why is None
    assert job.poll() is None


@needs_py_spy
def test_a_job_that_is_killed_meanwhile_keeps_what_was_seen(job):
    looking = PythonLines(job.pid, 0.05, looks=1000)
    looking.start()
    until = time.monotonic() + 120
    while not looking.lines():
        assert time.monotonic() < until
        time.sleep(0.01)
    job.kill()
    job.wait()
    assert [line.where for line in finished(looking).lines()] == ["job.py:6 (nap)"]


@needs_py_spy
def test_a_job_that_has_ended_already(job):
    job.kill()
    job.wait()
    looking = PythonLines(job.pid, 0.01, looks=3)
    looking.start()
    assert finished(looking).lines() == ()
    assert looking.why == "the job's process ended before py-spy could sample it"


@needs_py_spy
def test_a_process_that_is_no_python():
    with subprocess.Popen(["sleep", "600"]) as other:
        looking = PythonLines(other.pid, 0.01, looks=2)
        looking.start()
        assert finished(looking).lines() == ()
        assert (looking.why or "").startswith("py-spy failed: ")
        other.kill()


def test_before_the_first_look(job):
    looking = PythonLines(job.pid, 1000)
    assert looking.lines() == ()
    assert looking.why == "py-spy has not sampled the job yet"


@needs_py_spy
def test_a_main_thread_without_python(job, monkeypatch):
    def others(command: str, pid: int) -> list[process.Thread]:
        return [found for found in process.stacks(command, pid) if found.os_thread_id != pid]

    monkeypatch.setattr(breakdown, "stacks", others)
    looking = PythonLines(job.pid, 0.01, looks=2)
    looking.start()
    assert finished(looking).why == "py-spy did not find the Python stack of the main thread"


def test_without_py_spy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    looking = PythonLines(1, 0.01)
    looking.start()
    assert looking.poll()
    assert (looking.lines(), looking.why) == (
        (),
        "py-spy: not installed (pip install py-spy)",
    )


def stand_in(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo 'Error: Permission Denied: Try running again with sudo' >&2; exit 1",
            "py-spy is not permitted to read the job's memory: permission denied",
        ),
        ("exit 3", "py-spy failed: no error message"),
        ("echo not JSON", "dltune cannot parse the output of this version of py-spy"),
        ("exec sleep 60", "py-spy took longer than 0 s for a sample"),
    ],
)
@needs_py_spy
def test_a_py_spy_that_fails(job, tmp_path, monkeypatch, script, why):
    stand_in(tmp_path / "py-spy", script)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    if "sleep" in script:
        monkeypatch.setattr(process, "PATIENCE_SECONDS", 0.05)
    looking = PythonLines(job.pid, 0.01, looks=1)
    looking.start()
    assert finished(looking).lines() == ()
    assert (looking.why or "").startswith(why)


@pytest.mark.parametrize(("step", "between"), [(0.002, 0.05), (0.03, 0.09), (2.0, 0.2)])
def test_some_steps_pass_between_looks_as_far_as_they_are_short(step, between):
    assert between_looks(step) == pytest.approx(between)
