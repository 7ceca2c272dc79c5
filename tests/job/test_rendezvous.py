"""Jobs that run at once have their ranks meet at ports of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from torches import TORCH_PYTHON, needs_torch

from dltune.job.rank_layout import with_own_port


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "PET_RDZV_BACKEND", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "words",
    [
        ("torchrun", "--master-port", "{}", "train.py"),
        ("torchrun", "--master_port={}", "train.py", "29400"),
        ("accelerate", "launch", "--main_process_port", "{}", "train.py"),
        ("torchrun", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{}", "train.py"),
        ("torchrun", "--nnodes=1", "--rdzv_endpoint", "node7:{}", "train.py", "--port", "5"),
        ("python", "-m", "torch.distributed.run", "--rdzv-endpoint", "[::1]:{}", "etcd/train.py"),
        ("env", "MASTER_PORT={}", "python", "train.py"),
        ("mpirun", "-x", "MASTER_PORT={}", "-np", "2", "python", "train.py"),
    ],
)
def test_a_port_that_the_command_names_is_another_one(words: tuple[str, ...]) -> None:
    command, variables = with_own_port([word.format(29400) for word in words], {"A": "b"})
    port = variables["MASTER_PORT"]
    assert port != "29400"
    assert command == [word.format(port) for word in words]
    torchrun = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{port}"}
    told = torchrun if any("torch" in word for word in words) else {"PET_MASTER_PORT": port}
    assert variables == {"A": "b", "MASTER_PORT": port, **told}


def test_ranks_that_take_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "12355")
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a batch script has it for the ranks that it starts
    command, variables = with_own_port(["srun", "python", "a.py"], {})
    assert command == ["srun", "python", "a.py"]
    assert variables["MASTER_PORT"] != "12355"


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--nnodes", "2", "--master-port", "29400", "a.py"],
        ["torchrun", "--nnodes=1:2", "--rdzv-endpoint", "localhost:29400", "a.py"],
        ["accelerate", "launch", "--num_machines", "2", "--main_process_port", "29400", "a.py"],
    ],
)
def test_others_wait_there_for_ranks_of_several_nodes(command: list[str]) -> None:
    assert with_own_port(command, {}) == (command, {})


def test_nodes_that_the_environment_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "2")
    assert with_own_port(["torchrun", "a.py"], {}) == (["torchrun", "a.py"], {})


def test_a_rank_meets_the_others_where_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29400"}.items():
        monkeypatch.setenv(name, value)
    command = ["python", "a.py", "--master-port=29400"]
    assert with_own_port(command, {"A": "b"}) == (command, {"A": "b"})


@pytest.mark.parametrize(
    "command",
    [
        ["--rdzv-endpoint", "localhost:0"],
        ["--rdzv-backend=etcd-v2", "--rdzv-endpoint", "store:2379"],
        ["--master-port", "0"],
        ["--master-port"],
    ],
)
def test_what_names_no_port_of_the_ranks_stays(command: list[str]) -> None:
    assert with_own_port(["torchrun", *command], {})[0] == ["torchrun", *command]


@pytest.mark.parametrize("backend", [[], ["--rdzv-backend=c10d"]])
@needs_torch
def test_two_of_torchrun_at_once(tmp_path: Path, backend: list[str]) -> None:
    """By itself each takes port 29500, and the second one fails; or 29400, and it waits to join the
    first one."""
    script = tmp_path / "meets.py"
    script.write_text(
        "import os, sys; print(os.environ['MASTER_PORT'], flush=True); sys.stdin.read()"
    )
    torchrun = str(TORCH_PYTHON.parent / "torchrun")
    jobs = []
    try:
        for _ in range(2):
            command, variables = with_own_port([torchrun, *backend, str(script)], {})
            jobs.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **variables},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        ports = [job.stdout.readline().strip() for job in jobs if job.stdout]
        assert all(ports)
        assert len(set(ports)) == 2
        for job in jobs:
            job.communicate("")
        assert [job.returncode for job in jobs] == [0, 0]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
