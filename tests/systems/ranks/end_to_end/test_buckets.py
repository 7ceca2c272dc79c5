"""Real ranks of DistributedDataParallel's: profiled, planned for, and run in planned buckets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from profiled_jobs import JOBS, profile
from torches import TORCH_PYTHON, needs_torch
from two_ranks import free_port

from dltune.plan.plan import load_plan, new_plan
from dltune.schemas.profile import ALLREDUCE, Profile
from dltune.schemas.settings import SettingsPlan
from dltune.system import topology
from dltune.systems.ranks.buckets.section import Buckets, Model, filled

pytestmark = [pytest.mark.tensorflow, needs_torch]

GRADIENTS = (4, 1024, *(1024, 262144) * 6)  # of the job's layers, the last one first
PLANNED = (4 + 1024 + 2 * (1024 + 262144), 4 * (1024 + 262144))  # bytes


def launched(*arguments: object, ranks: int = 2) -> list[object]:
    port = free_port()
    job = [JOBS / "torch_ranks.py", *arguments]
    if ranks == 1:
        where = ["RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
        return ["env", *where, TORCH_PYTHON, *job]
    where = [
        "--nproc-per-node",
        str(ranks),
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        f"{port}",
    ]
    return [TORCH_PYTHON.parent / "torchrun", *where, *job]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return profile(tmp_path_factory.mktemp("profiled"), launched()).profile


def test_a_rank_s_profile_has_what_ranks_sum_up(measured: Profile) -> None:
    (step,) = measured.steps
    asked = [place for place, node in enumerate(step.nodes) if node.type == ALLREDUCE]
    assert [one.node for one in step.collectives] == asked
    assert sum(one.bytes for one in step.collectives) == sum(GRADIENTS)
    assert all(0 < one.took.min <= one.took.median for one in step.collectives)


def planned(folder: Path, gradients: tuple[int, ...] = GRADIENTS) -> Path:
    model = Model("a", gradients, gradients, PLANNED, filled(gradients, PLANNED), 2.0, 1.0)
    plan = new_plan(topology.local(), sections={"buckets": Buckets((model,), 0.0, 0.0)})
    path = folder / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    return path


def run(
    folder: Path, plan: Path, *arguments: object, ranks: int = 2
) -> subprocess.CompletedProcess[str]:
    job = launched("--steps", 20, "--losses", folder / "losses", *arguments, ranks=ranks)
    command = [sys.executable, "-m", "dltune", "run", "--plan", plan, "--", *job]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


def losses(folder: Path) -> list[str]:
    return [line for k in "01" for line in (folder / f"losses{k}").read_text().splitlines()]


def test_ranks_get_the_buckets_and_the_same_losses(tmp_path: Path) -> None:
    plain, under = tmp_path / "plain", tmp_path / "under"
    for folder in (plain, under):
        folder.mkdir()
    job = launched("--steps", 20, "--losses", plain / "losses")
    alone = subprocess.run(list(map(str, job)), capture_output=True, text=True, timeout=300)
    assert alone.returncode == 0, alone.stderr
    done = run(under, planned(tmp_path))
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"rank {rank}: 14 gradients in 2 buckets of 515 KiB, 1.0 MiB, as planned" in (
            done.stderr
        )
    assert len(losses(under)) == 40
    assert losses(under) == losses(plain)


def test_another_model_is_left_alone_and_said(tmp_path: Path) -> None:
    done = run(tmp_path, planned(tmp_path, (*GRADIENTS[:-1], 1024)), ranks=1)
    assert done.returncode == 2
    unchanged = "the buckets of a model with 14 gradients are unchanged: its gradients differ"
    assert unchanged in done.stderr
    assert len((tmp_path / "losses0").read_text().splitlines()) == 20  # it ran to its end


def test_buckets_of_a_model_with_unused_parameters_stay(tmp_path: Path) -> None:
    done = run(tmp_path, planned(tmp_path), "--unused", ranks=1)
    assert done.returncode == 2
    assert "find_unused_parameters, with which DDP does not rebuild its buckets" in done.stderr


@pytest.mark.proof
def test_the_size_of_buckets_is_tuned(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    job = [TORCH_PYTHON.parent / "torchrun", "--nproc-per-node", "2", JOBS / "torch_ranks.py"]
    options = ["--budget", "2m", "--only", "ddp_bucket", "-o", plan]
    command = [sys.executable, "-m", "dltune", "tune", *options, "--", *job]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    section = load_plan(plan).of(SettingsPlan)
    assert section is not None
    sizes = {one.choices[0].value for one in section.effects if one.verdict != "failed"}
    assert sizes == {"1MiB", "5MiB", "100MiB"}
