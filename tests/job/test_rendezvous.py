"""Jobs that run at once have their ranks meet at ports of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from torches import TORCH_PYTHON, needs_torch

from dltune.job.rendezvous import apart


@pytest.mark.parametrize(
    "words",
    [
        ("torchrun", "--master-port", "{}", "train.py"),
        ("torchrun", "--master_port={}", "train.py", "29400"),
        ("accelerate", "launch", "--main_process_port", "{}", "train.py"),
        ("torchrun", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{}", "train.py"),
        ("torchrun", "--nnodes=1", "--rdzv_endpoint", "127.0.0.1:{}", "train.py", "--port", "5"),
    ],
)
def test_a_port_that_the_command_names_is_another_one(words: tuple[str, ...]) -> None:
    given = [word.format(29400) for word in words]
    command, variables = apart(given, {})
    port = int(variables["PET_MASTER_PORT"])
    assert port != 29400
    assert command == [word.format(port) for word in words]


def test_ranks_that_take_it_from_the_environment() -> None:
    command, variables = apart(["mpirun", "-np", "2", "python", "a.py"], {"MASTER_PORT": "12355"})
    assert command == ["mpirun", "-np", "2", "python", "a.py"]
    assert variables["MASTER_PORT"] == variables["PET_MASTER_PORT"] != "12355"


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["torchrun", "--nnodes", "2", "--master-port", "29400", "a.py"], {}),
        (["torchrun", "--nnodes=1:2", "--rdzv-endpoint", "localhost:29400", "a.py"], {}),
        (["python", "a.py", "--master-port=29400"], {"WORLD_SIZE": "2", "MASTER_PORT": "29400"}),
    ],
)
def test_others_wait_there_for_ranks_of_several_nodes(
    command: list[str], environment: dict[str, str]
) -> None:
    assert apart(command, environment) == (command, {})


@pytest.mark.parametrize(
    "command",
    [
        ["--rdzv-endpoint", "somewhere:29400"],
        ["--rdzv-endpoint", "localhost:0"],
        ["--master-port", "0"],
        ["--master-port"],
    ],
)
def test_what_names_no_port_here_stays(command: list[str]) -> None:
    assert apart(["torchrun", *command], {})[0] == ["torchrun", *command]


@needs_torch
def test_two_of_torchrun_at_once(tmp_path: Path) -> None:
    """By itself each takes port 29500, and the second one fails."""
    script = tmp_path / "meets.py"
    script.write_text(
        "import os, sys; print(os.environ['MASTER_PORT'], flush=True); sys.stdin.read()"
    )
    torchrun = str(TORCH_PYTHON.parent / "torchrun")
    jobs = []
    try:
        for _ in range(2):
            command, variables = apart([torchrun, str(script)], {})
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
