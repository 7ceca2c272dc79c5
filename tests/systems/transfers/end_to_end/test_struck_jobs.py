"""Servers and workers that die, and steps that are given up, under a plan of transfers: the job
goes on or ends as it would without, dltune tells what came of the plan, and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from running import MARK, remaining, with_mark

from dltune.base import documents
from dltune.plan.plan import new_plan
from dltune.system import topology
from dltune.systems.transfers.section import Receiver, Transfer, Transfers

pytestmark = pytest.mark.tensorflow

JOBS = Path(__file__).parents[3] / "jobs"
CLUSTER, COORDINATOR = JOBS / "struck_cluster.py", JOBS / "coordinator.py"
SERVER, WORKER = "/job:ps/task:0", "/job:worker/task:0"
DLTUNE = [sys.executable, "-m", "dltune"]


@dataclass(frozen=True)
class Ended:
    code: int
    said: str


def run(plan: Path, job: Path, *arguments: object, options: Sequence[str] = ()) -> Ended:
    """To its end; no process is left then."""
    mark = str(uuid.uuid4())
    command = [*DLTUNE, "run", "--plan", plan, *options, "--", sys.executable, job, *arguments]
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        env={**os.environ, MARK: mark},
    )
    assert not remaining(with_mark, mark)
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stderr)


def sent(worker: str, count: int, order: str) -> str:
    return (
        f"dltune: {SERVER} sent {worker} {count} of {count} planned tensors in the order {order}\n"
    )


def unmeasured(path: Path, workers: Sequence[str], tensors: Sequence[str]) -> Path:
    """A plan for tensors that nobody has measured."""
    transfers = tuple(Transfer(tensor, SERVER, 1, None) for tensor in tensors)
    section = Transfers("tic", tuple(Receiver(worker, "any", transfers) for worker in workers))
    plan = new_plan(topology.local(), signatures=("any",), sections={"transfers": section})
    with documents.claim(path, overwrite=False) as output:
        output.write(plan)
    return path


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    profile, plan = folder / "profile.json", folder / "plan.json"
    quick = ["--counters", "none", "--steps", "5", "-o", profile]
    job = ["--", sys.executable, CLUSTER, "", "0", "0"]
    subprocess.run([*DLTUNE, "profile", *quick, *job], check=True, capture_output=True)
    deciding = [*DLTUNE, "plan", "transfers", profile, "--bandwidth", "1", "-o", plan]
    subprocess.run(deciding, check=True, capture_output=True)
    return plan


@pytest.mark.proof
def test_a_job_goes_on_after_steps_and_a_server_that_failed(tmp_path):
    faults = "cancelled,failed,partial,closed,restarted_server"
    plan = unmeasured(tmp_path / "plan.json", [WORKER], [f"p{n}/read" for n in range(16)])
    ended = run(plan, CLUSTER, faults, 3, 0, options=["--partial"])
    assert ended.code == 0, ended.said
    assert sent(WORKER, 16, "tic") in ended.said


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        *((fault, 0) for fault in ("cancelled", "closed", "failed", "partial", "together")),
        ("restarted_server", 0),
        ("dead_worker", 128 + 9),
        ("dead_server", 3),
    ],
)
def test_a_job_ends_as_it_would_without_a_plan(planned, fault, code, seed):
    ended = run(planned, CLUSTER, fault, 10, seed)
    assert ended.code == code, ended.said
    assert sent(WORKER, 16, "improved") in ended.said
    assert f"dltune: {WORKER}: " in ended.said
    if code:
        assert ended.said.endswith(f"dltune: the job ended with exit code {code}\n")


@pytest.mark.proof
@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("again", range(10))
def test_two_closures_of_a_coordinator_at_once(tmp_path, killed, again):
    """Also where one of their workers dies with its own, which the other takes over."""
    workers = [WORKER, "/job:worker/task:1"]
    tensors = ["MatMul/ReadVariableOp", *(f"MatMul_{n}/ReadVariableOp" for n in range(1, 6))]
    plan = unmeasured(tmp_path / "plan.json", workers, tensors)
    ended = run(plan, COORDINATOR, 2, killed, options=["--partial"])
    assert ended.code == 0, ended.said
    for worker in workers:
        assert sent(worker, 6, "tic") in ended.said
