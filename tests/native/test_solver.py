"""A solver's process: what it gives comes back, and how it ended otherwise is told."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import pytest
import running

from dltune.base.errors import UsageError
from dltune.native import solver
from dltune.native.solver import SolverFailed

LIMIT = 100.0  # of what takes no time
RUN = """
import sys
from dltune.native import solver
tell = f"import time; open({sys.argv[1]!r}, 'w').close(); time.sleep(600)"
print("ready", flush=True)
solver.run(exec, tell, limit=600)
"""


def test_what_it_gives_comes_back_whatever_is_printed():
    assert solver.run(math.factorial, 20, limit=LIMIT) == math.factorial(20)
    assert solver.run(print, "printed", limit=LIMIT) is None


def test_a_process_that_dies_is_told():
    with pytest.raises(SolverFailed, match=r"^the solver was killed by SIGABRT$"):
        solver.run(os.abort, limit=LIMIT)
    with pytest.raises(SolverFailed, match=r"^the solver ended with exit code 3$"):
        solver.run(os._exit, 3, limit=LIMIT)
    with pytest.raises(SolverFailed, match=r"^the solver failed: ValueError: math domain error$"):
        solver.run(math.sqrt, -1, limit=LIMIT)


def test_one_that_cannot_be_started_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SolverFailed, match="cannot be started: No such file or directory"):
        solver.run(math.sqrt, 1, limit=LIMIT)


def test_it_is_ended_after_its_time(monkeypatch):
    monkeypatch.setattr(solver, "GRACE", 0.0)
    with pytest.raises(SolverFailed, match="exceeded its limit of 1 s"):
        solver.run(time.sleep, 600, limit=1.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_who_waits_for_it(number, started, tmp_path):
    mark = str(tmp_path)
    begun = tmp_path / "begun"
    parent = started(RUN, begun, env={**os.environ, running.MARK: mark}, stderr=subprocess.DEVNULL)
    while not begun.exists():
        assert parent.poll() is None
        time.sleep(0.02)
    assert len(running.with_mark(mark)) == 2
    parent.send_signal(number)
    parent.wait()
    assert running.remaining(running.with_mark, mark) == []


def test_it_finds_what_who_waits_for_it_finds(monkeypatch, tmp_path):
    """And no module that happens to lie where that was started."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "of_mine.py").write_text("")
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path), str(tmp_path / "own")])
    solver.run(exec, "import of_mine", limit=LIMIT)


def test_without_ortools_a_person_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(solver, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs ortools, which is not installed") as error:
        solver.run(math.sqrt, 1, limit=LIMIT)
    assert error.value.remedy == "pip install 'dltune[memory]'"
