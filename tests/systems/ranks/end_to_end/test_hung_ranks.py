"""Real jobs of two ranks one of which gets no further: which one, and that all end when told to."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from allreduce_plans import written
from two_ranks import Controller, Running, dltune, job, missing

from dltune.schemas.plan import Uniform
from dltune.system import topology
from dltune.systems.ranks.horovod import schema

pytestmark = pytest.mark.tensorflow

JOB = Path(__file__).parents[3] / "jobs" / "horovod_hung.py"
# seconds until the hang is told: imports of two ranks on a loaded machine, and twice what shows it
TOLD = 400.0


def interrupted(running: Running, come: Callable[[], bool]) -> tuple[int, list[psutil.Process]]:
    """Once it has come so far: its exit code after ^C, and what of the job is left."""
    until = time.monotonic() + TOLD
    while not come():
        assert running.process.poll() is None, running.stdout + running.stderr
        assert time.monotonic() < until, running.stdout + running.stderr
        time.sleep(0.2)
    family = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(signal.SIGINT)
    code = running.wait()
    # what a launcher killed at the last is reaped a little later
    _, left = psutil.wait_procs(family, timeout=60)
    return code, [one for one in left if one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("controller", "how", "shown"),
    [
        ("mpi", "between", "its Python code has made no progress for"),
        pytest.param(
            *("gloo", "within", "an op of its step has been in Python"), marks=pytest.mark.proof
        ),
        pytest.param(
            *("gloo", "stopped", "its process is stopped by a signal"), marks=pytest.mark.proof
        ),
    ],
)
def test_the_report_names_the_rank_that_hangs(
    tmp_path: Path, controller: Controller, how: str, shown: str
) -> None:
    if reason := missing(controller):
        pytest.skip(reason)
    under = dltune("horovod-report", "--json", "-o", tmp_path / "report.json")
    with job(tmp_path, controller, (JOB, tmp_path / "record", how), under=under) as running:
        code, left = interrupted(running, lambda: f"; rank 1 hangs: {shown}" in running.stderr)
    assert code == 0  # dltune ended it, and the report is still valid
    assert not left
    assert "Traceback" not in running.stderr
    report = schema.load(tmp_path / "report.json")
    assert report.partial
    stuck = {rank.rank: rank.stuck for rank in report.ranks}
    assert stuck[0] is None
    assert shown in (stuck[1] or "")
    assert report.findings[0].title == "rank 1 hangs, and the others wait for it"


@pytest.mark.parametrize(
    ("controller", "how", "shown"),
    [
        pytest.param(
            *("gloo", "stopped", "its process is stopped by a signal"), marks=pytest.mark.proof
        ),
        ("mpi", "within", "an op of its step has been in Python"),
    ],
)
def test_a_run_names_the_rank_that_hangs(
    tmp_path: Path, controller: Controller, how: str, shown: str
) -> None:
    if reason := missing(controller):
        pytest.skip(reason)
    path = tmp_path / "plan.json"
    written(path, topology.local(), controller, threads=Uniform(1, 1))
    under = dltune("run", "--plan", path)
    with job(tmp_path, controller, (JOB, tmp_path / "record", how), under=under) as running:
        code, left = interrupted(
            running, lambda: "hangs, and the others wait for it: " in running.stderr
        )
    pid = (tmp_path / "record" / "rank1").read_text().split()[0]
    assert code != 0  # the launcher's own
    assert not left
    assert "Traceback" not in running.stderr
    assert (
        f"dltune: rank 1 (pid {pid}) hangs, and the others wait for it: {shown}" in running.stderr
    )
    last = running.stderr.splitlines()[-1]
    assert last.startswith(
        f"dltune: the job ended with exit code {code}: rank 1 (pid {pid}) hung: "
    )
    assert "rank 0" not in last


def test_a_profile_ends_a_job_that_hangs_without_a_traceback(tmp_path: Path) -> None:
    if reason := missing("gloo"):
        pytest.skip(reason)
    under = dltune("profile", "-o", tmp_path / "profile.json")
    with job(tmp_path, "gloo", (JOB, tmp_path / "record", "between"), under=under) as running:
        records = [tmp_path / "record" / f"rank{rank}" for rank in (0, 1)]
        code, left = interrupted(running, lambda: all(map(_trains, records)))
    assert code == 130
    assert not left
    assert "Traceback" not in running.stderr
    assert "dltune: ended by SIGINT, together with the job" in running.stderr.splitlines()[-1]


def _trains(record: Path) -> bool:
    return record.exists() and record.read_text().count("\n") > 5
