"""Jobs that stand still, and that end when dltune is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sessions import soon, states

from dltune.system.proc import stat
from dltune.tune.guardian import Guardian, end, freeze, thaw, watch

# a process and its child, in a session of their own
FAMILY = (
    "import os, time; os.setsid(); child = os.fork(); "
    "child and print('ready', flush=True); time.sleep(600)"
)
Started = Callable[..., "subprocess.Popen[bytes]"]


def test_all_of_a_job_stands_still_and_goes_on(started: Started) -> None:
    job = started(FAMILY)
    assert soon(lambda: len(stat.session(job.pid)) == 2)
    freeze(job.pid)
    assert soon(lambda: states(job.pid) == {"T"})
    thaw(job.pid)
    assert soon(lambda: "T" not in states(job.pid))
    end(job.pid)
    assert job.wait(120) == -signal.SIGKILL
    assert soon(lambda: not stat.session(job.pid))


def test_what_was_told() -> None:
    assert watch(["+1\n", "+2\n", "-1\n", "+3\n"]) == {2, 3}


def test_a_job_that_has_ended_well_is_of_no_concern(started: Started) -> None:
    job = started(FAMILY)
    with Guardian() as guardian:
        guardian.begins(job.pid)
        guardian.ended(job.pid)
    assert job.poll() is None
    end(job.pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed(started: Started, number: int) -> None:
    job = started(FAMILY)
    freeze(job.pid)
    code = (
        "import time\nfrom dltune.tune.guardian import Guardian\n"
        f"with Guardian() as guardian:\n guardian.begins({job.pid})\n"
        " print('ready', flush=True)\n time.sleep(600)"
    )
    dltune = started(code, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    dltune.send_signal(number)
    assert job.wait(120) == -signal.SIGKILL
    assert soon(lambda: not stat.session(job.pid))


def test_it_starts_where_dltune_runs_from() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dltune.tune.guardian"], input="", text=True, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
