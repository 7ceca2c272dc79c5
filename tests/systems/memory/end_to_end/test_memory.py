"""`dltune plan memory` and `dltune run` on real TensorFlow jobs: as little memory as planned, and
the very losses of the job as it is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from profiled_jobs import JOBS, JOBS_THAT_WORK

from dltune.schemas import profile as documents
from dltune.systems.memory.model.allocator import executed
from dltune.systems.memory.model.profiled_step import measured

pytestmark = pytest.mark.tensorflow

STEPS = 40
IN_FLIGHT = 32 * (24 * 24 * 3 * 4 + 8)  # bytes of a batch
AHEAD = 5  # batches that `fit` has had on their way
REGULARISED = (sys.executable, JOBS / "regularised.py")


@dataclass(frozen=True)
class Planned:
    """A section, what came of it, and the losses of the job."""

    section: dict[str, object]
    outcome: dict[str, object]
    stderr: str
    losses: list[str]

    @property
    def most(self) -> int:
        return self.section["live"] + self.section["peak"]  # type: ignore[operator]

    @property
    def process(self) -> dict[str, int]:
        (process,) = self.outcome["sections"]["memory"]["processes"]  # type: ignore[index]
        assert process["steps"] >= STEPS - 1
        return process  # type: ignore[no-any-return]

    @property
    def measured(self) -> int:
        return self.process["peak"]

    @property
    def beside_plan(self) -> int:
        """Bytes by which it is off, but for input that came earlier or later than in the profile:
        of whole batches, Keras' `fit` has more the busier the machine is."""
        ahead: int = self.process["live"] - self.section["live"]  # type: ignore[operator]
        return self.measured - int(ahead / IN_FLIGHT) * IN_FLIGHT - self.most

    @property
    def as_planned(self) -> bool:
        """To 1 %, and a batch; or to 1 % and some whole batches, of which others may be on their
        way where a step is at its peak than between steps, and than in the profile."""
        batches = round((self.measured - self.most) / IN_FLIGHT)
        beside = self.measured - batches * IN_FLIGHT - self.most
        between = round((self.process["live"] - self.section["live"]) / IN_FLIGHT)  # type: ignore[operator]
        few = min(abs(batches), abs(batches - between)) <= AHEAD
        whole = few and abs(beside) <= 0.01 * self.most
        return whole or abs(self.beside_plan) <= 0.01 * self.most + IN_FLIGHT


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dltune", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=550)


def command(job: Sequence[object], losses: Path) -> list[str]:
    return list(map(str, [*job, "--steps", STEPS, "--losses", losses]))


def plain(folder: Path, job: Sequence[object]) -> list[str]:
    subprocess.run(command(job, folder / "plain"), check=True, capture_output=True, timeout=550)
    return (folder / "plain").read_text().splitlines()


def planned(folder: Path, profile: Path, job: Sequence[object], *options: object) -> Planned:
    plan = folder / "plan.json"
    made = dltune("plan", "memory", profile, *options, "-o", plan)
    assert made.returncode == 0, made.stderr
    return enforced(folder, plan, job)


def enforced(folder: Path, plan: Path, job: Sequence[object]) -> Planned:
    outcome = folder / "outcome.json"
    run = ["run", "--plan", plan, "--json", outcome, "--"]
    done = dltune(*run, *command(job, folder / "planned"))
    assert done.returncode == 0, done.stderr
    return Planned(
        json.loads(plan.read_text())["sections"]["memory"],
        json.loads(outcome.read_text()),
        done.stderr,
        (folder / "planned").read_text().splitlines(),
    )


@pytest.fixture(scope="module")
def regularised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of the job with batch norm and dropout."""
    output = tmp_path_factory.mktemp("regularised") / "profile.json"
    options = ("--steps", 3, "--counters", "none", "-o", output)
    done = dltune("profile", *options, "--", *REGULARISED)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of that job as it is."""
    return plain(tmp_path_factory.mktemp("plain"), REGULARISED)


def test_batch_norm_and_dropout_give_the_same_in_half_the_memory(regularised, losses, tmp_path):
    budget = 5 << 20
    found = planned(tmp_path, regularised, REGULARISED, "--budget", "5MiB")
    assert found.section["before"] + found.section["live"] > 1.6 * budget
    assert found.as_planned, (found.beside_plan, found.most, found.process)
    assert found.most <= budget
    # while a step is at its peak a batch may be made: its rows are there beside it
    assert found.measured <= budget + 2 * IN_FLIGHT
    assert ("exceeded" in found.stderr) == (found.measured > budget)
    assert found.losses == losses


def test_what_leaves_for_a_file_comes_back_as_it_was(regularised, losses, tmp_path):
    """In less memory than computing again can do with."""
    least = tmp_path / "least.json"
    assert dltune("plan", "memory", regularised, "--smallest", "-o", least).returncode == 0
    section = json.loads(least.read_text())["sections"]["memory"]
    held = section["live"] + section["peak"] >> 10
    leaving, budgets = 0, iter(range(held - 128, held // 2, -128))
    while not leaving:  # the smallest that is found is not always the smallest that there is
        options = ("--budget", f"{next(budgets)}KiB", "--offload", tmp_path)
        made = dltune("plan", "memory", regularised, *options, "--overwrite", "-o", least)
        assert made.returncode == 0, made.stderr
        leaving = len(json.loads(least.read_text())["sections"]["memory"]["offloaded"])
    # and not planned anew, which goes by how fast the folder is now
    found = enforced(tmp_path, least, REGULARISED)
    assert f"{leaving} of {leaving} tensor" in found.stderr
    assert found.as_planned, (found.beside_plan, found.most, found.process)
    assert found.losses == losses


def test_what_runs_a_third_time_reads_what_ran_just_before(regularised, losses, tmp_path):
    """A reader that comes after two runs and again after the third holds none of them longer."""
    plan = tmp_path / "plan.json"
    assert dltune("plan", "memory", regularised, "--slowdown", "0%", "-o", plan).returncode == 0
    document = json.loads(plan.read_text())
    section = document["sections"]["memory"]
    step = measured(max(documents.load(regularised).steps, key=lambda one: one.share))
    names, reads = step.graph.names, step.graph.reads.lists
    number = {name: node for node, name in enumerate(names)}
    order = [number[section["nodes"][at]] for at in section["order"]]
    tensors = step.graph.tensors
    given = [
        (int(tensors.bytes[tensor]), node, reader)
        for reader in order
        for tensor in reads[reader]
        if step.again[node := int(tensors.producer[tensor])] == step.again[reader] == len(order)
    ]
    bytes, node, reader = max(given)
    assert bytes > 2 * IN_FLIGHT
    at = order.index(node)
    order = [*order[:at], node, *order[at:], node, reader]
    section["order"] = [section["nodes"].index(names[node]) for node in order]
    section["peak"] = executed(step, order).peak
    plan.write_text(json.dumps(document))
    found = enforced(tmp_path, plan, REGULARISED)
    # held longer, it would be all of it; a batch may come earlier or later than in the profile
    assert abs(found.measured - found.most) < bytes - IN_FLIGHT
    assert found.losses == losses


def test_a_budget_that_cannot_be_met_is_refused_with_the_least_that_can(regularised, tmp_path):
    refused = dltune("plan", "memory", regularised, "--budget", "1MiB", "-o", tmp_path / "plan")
    assert refused.returncode == 2
    assert "for the step exceed 1.0 MiB" in refused.stderr
    assert "pass --budget" in refused.stderr
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("keras_fit", 0.9),
        ("v1_session", 0.9),
        ("other_environment", 0.9),
        # most of it is what one of Eigen's convolutions takes for itself
        ("eigen", 1.0),
    ],
)
def test_every_kind_of_job_keeps_its_numbers(
    profiled: Callable[..., object], tmp_path, name, share
):
    """Keras's `fit`, a session with variables of both kinds, a tape under TensorFlow 2.16 and one
    without oneDNN."""
    profile = profiled(name).output  # type: ignore[attr-defined]
    job = JOBS_THAT_WORK[name]
    found = planned(tmp_path, profile, job, "--smallest")
    assert found.section["peak"] <= share * found.section["before"]
    assert found.as_planned, (found.beside_plan, found.most, found.process)
    assert found.losses == plain(tmp_path, job)


def limited(job: Sequence[str], megabytes: int | None) -> tuple[int, int]:
    """Exit code and most MiB of a command in a control group of its own, with this limit."""
    group = Path("/sys/fs/cgroup/memory") / f"dltune-test-{os.getpid()}"
    group.mkdir()
    try:
        if megabytes is not None:
            (group / "memory.limit_in_bytes").write_text(str(megabytes << 20))
        enter = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
        done = subprocess.run(["sh", "-c", enter, group, *job], capture_output=True, timeout=600)
        return done.returncode, int((group / "memory.max_usage_in_bytes").read_text()) >> 20
    finally:
        for _ in range(1200):  # a process that has ended can be there for a moment
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


NEEDS_GROUPS = pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK),
    reason="needs the right to make memory control groups (version 1)",
)


def of_512(tmp_path: Path) -> list[str | Path]:
    """The job with a batch so large that what it needs is beyond what TensorFlow itself takes."""
    job = [*command(REGULARISED, tmp_path / "losses"), "--batch", "512"]
    job[job.index("--steps") + 1] = "6"
    return job


@NEEDS_GROUPS
def test_a_batch_that_does_not_fit_trains_with_a_plan(regularised, tmp_path):
    """Planned from a profile of fewer examples a step; killed without, the same losses with it."""
    plan = tmp_path / "plan.json"
    made = dltune("plan", "memory", regularised, "--smallest", "-o", plan)
    assert made.returncode == 0, made.stderr
    job = of_512(tmp_path)
    code, most = limited(job, None)
    assert code == 0
    losses = (tmp_path / "losses").read_text()
    run = [sys.executable, "-m", "dltune", "run", "--plan", str(plan), "--", *job]
    code, planned = limited(run, None)
    assert code == 0
    assert planned < most
    limit = (planned + most) // 2
    assert limited(job, limit)[0] == -signal.SIGKILL
    (tmp_path / "losses").unlink()
    assert limited(run, limit)[0] == 0
    assert (tmp_path / "losses").read_text() == losses


@NEEDS_GROUPS
@pytest.mark.proof
def test_a_profile_of_a_batch_that_does_not_fit_says_that_the_job_was_killed(tmp_path):
    job = of_512(tmp_path)
    code, most = limited(job, None)
    assert code == 0
    profiled = [sys.executable, "-m", "dltune", "profile", "-o", str(tmp_path / "p"), "--", *job]
    assert limited(profiled, most * 3 // 4)[0] == 128 + signal.SIGKILL
