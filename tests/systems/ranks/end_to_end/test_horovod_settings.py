"""Settings of real jobs of two Horovod ranks: run with those of a plan, and tuned."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import remaining, with_argument
from settings_plans import section, written
from two_ranks import TRAIN, Controller, environment, missing

from dltune.schemas.settings import Choice
from dltune.system import topology

pytestmark = pytest.mark.tensorflow


RANK = """
import json, os, sys
import tensorflow
import horovod.tensorflow as hvd
hvd.init()
found = [hvd.size(), sys.argv[2], sorted(os.sched_getaffinity(0)), os.environ["GLIBC_TUNABLES"]]
with open(f"{sys.argv[1]}/rank{hvd.rank()}", "w") as file:
    json.dump([*found, bool(hvd.gloo_enabled())], file)
"""


def test_more_ranks_train_on_the_same_batch_each_on_its_own_cores(tmp_path: Path) -> None:
    if reason := missing("gloo"):
        pytest.skip(reason)
    machine = topology.local()
    if len(machine.cores) < 2:
        pytest.skip("two ranks need two cores")
    job = ("horovodrun", "-np", "{ranks:1}", sys.executable, "-c", RANK, tmp_path, "{batch:64}")
    chosen = (("ranks", "2"), ("horovod", "gloo"), ("allocator", "glibc-keep"))
    plan = written(tmp_path / "ranks.json", job[:6], *chosen)
    with open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "dltune", "run", "--plan", plan, "--", *map(str, job)],
            stdout=out,
            stderr=out,
            timeout=480,
            env=environment(),
        )
    assert done.returncode == 0, (tmp_path / "out").read_text()
    ranks = [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in (0, 1)]
    for size, batch, _, tunables, gloo in ranks:
        assert (size, batch, gloo) == (2, "32", True)
        assert "mmap_threshold" in tunables
    mine, others = (set(rank[2]) for rank in ranks)
    assert mine | others == {cpu for core in machine.cores for cpu in core.cpus}
    assert not mine & others
    said = (tmp_path / "out").read_text()
    assert "settings: ranks=2, horovod=gloo" in said
    assert "not in effect" not in said


@pytest.mark.parametrize(
    ("controller", "options", "tried"),
    [
        pytest.param(
            *("mpi", ("--only", "mpi_yield"), Choice("mpi_yield", "on")), marks=pytest.mark.proof
        ),
        ("gloo", ("--only", "ranks", "--allow", "lossy"), Choice("ranks", "1")),
    ],
)
def test_ranks(
    controller: Controller, options: tuple[str, ...], tried: Choice, tmp_path: Path
) -> None:
    """Under MPI all ranks are stopped between turns, gloo's go on; after the first trial the search
    is interrupted, and nothing of them is left."""
    if reason := missing(controller):
        pytest.skip(reason)
    if len(topology.local().cores) < 2:
        pytest.skip("two ranks need two cores")
    launcher = ("horovodrun", "-np", "{ranks:2}", f"--{controller}")
    train = (sys.executable, TRAIN, "--blocks", 1, "--batch", "{batch:16}", "--record", tmp_path)
    dltune = (sys.executable, "-m", "dltune", "tune", *options, "--budget", "30m", "--")
    out, err = tmp_path / "out", tmp_path / "err"
    with open(out, "wb") as to_out, open(err, "wb") as to_err:
        found = subprocess.Popen(
            [*dltune, *map(str, (*launcher, *train))],
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            cwd=tmp_path,
            env=environment(),
        )
    try:
        until = time.monotonic() + 480
        while f"{tried} against the job as found: " not in err.read_text():
            assert found.poll() is None, err.read_text()
            assert time.monotonic() < until, err.read_text()
            time.sleep(0.5)
        found.send_signal(signal.SIGINT)
        assert found.wait(240) == 128 + signal.SIGINT, err.read_text()
    finally:
        found.kill()
        found.wait()
    (first, *_) = section(tmp_path / "plan.json").effects
    assert first.choices == (tried,)
    assert first.verdict not in ("failed", "no effect"), first
    assert first.measured is not None
    assert not remaining(with_argument, tmp_path)
