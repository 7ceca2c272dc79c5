"""The plugin in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# functions take what they say, by a clock that nothing else moves
TESTS = """
import time

import pytest

@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

def test_fast(dltune_gate):
    assert dltune_gate.within(0.5, lambda: time.sleep(1e-3)).outcome == "pass"

def test_slow(dltune_gate):
    dltune_gate.within(1e-4, lambda: time.sleep(0.002))

def test_no_slower(dltune_gate):
    verdict = dltune_gate.ratio(5.0, new=lambda: time.sleep(1e-3), base=lambda: time.sleep(1e-3))
    assert verdict.outcome == "pass"

def test_slower(dltune_gate):
    dltune_gate.ratio(1.5, new=lambda: time.sleep(1e-2), base=lambda: time.sleep(1e-3))

def test_far_slower(dltune_gate):
    dltune_gate.ratio(1.5, new=lambda: time.sleep(5.0), base=lambda: time.sleep(1e-6))

def test_long(dltune_gate):
    dltune_gate.within(1.0, lambda: time.sleep(2.0))

def test_near(dltune_gate):
    dltune_gate.ratio(1.001, new=lambda: time.sleep(1e-3), base=lambda: time.sleep(1e-3))

def test_plain():
    pass
"""


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(TESTS)

    def call(*options: str, config: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "pyproject.toml").write_text(config)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )

    return call


def test_limits_are_held_when_asked_for(run) -> None:
    done = run("--dltune-gate")
    assert "4 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "limit 100 us" in done.stdout
    assert "ratio to the base" in done.stdout
    assert "Traceback" not in done.stdout


def test_without_the_option_they_are_skipped(run) -> None:
    done = run()
    assert "1 passed, 7 skipped" in done.stdout, done.stdout + done.stderr
    assert "checked only with --dltune-gate" in done.stdout


def test_a_faulty_configuration_is_an_error_of_use(run) -> None:
    done = run("--dltune-gate", config="[tool.dltune.gate]\nbudgit = 3\n")
    assert done.returncode == 4
    assert "did you mean budget?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("meaning", "told"), [("pass", "1 passed"), ("fail", "1 failed")])
def test_undecided_means_what_the_configuration_says(run, meaning: str, told: str) -> None:
    settings = f"[tool.dltune.gate]\nbudget = 1e-9\nundecided = '{meaning}'\n"
    done = run("--dltune-gate", "-k", "test_near", config=settings)
    assert told in done.stdout
