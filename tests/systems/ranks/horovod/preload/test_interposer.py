"""The build, the variables, and processes that are no ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dltune.base.errors import DltuneError
from dltune.systems.ranks.allreduce.section import Sleeps
from dltune.systems.ranks.horovod.preload import interposer
from dltune.systems.ranks.horovod.preload.interposer import read

FORKS = """
import os, threading, time
def sleep_and_fork():
    time.sleep(0.01)
    if (child := os.fork()) == 0:
        time.sleep(0.01)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread = threading.Thread(target=sleep_and_fork)
thread.start()
thread.join()
"""


def test_built_once_and_cached(preloaded: Path) -> None:
    told: list[str] = []

    again = interposer.build(Path(sys.executable).parent / "mpirun", lambda: told.append("built"))

    assert (again, told) == (preloaded, [])


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "sleep 0.01; (sleep 0.01; exit 0); echo 7"],
        [sys.executable, "-c", FORKS],
    ],
)
def test_harmless_where_there_is_no_mpi(
    preloaded: Path, tmp_path: Path, command: list[str]
) -> None:
    chosen = interposer.variables(preloaded, Sleeps(3e-5, 1), os.environ, tmp_path)

    done = subprocess.run(command, env=os.environ | chosen, capture_output=True, timeout=300)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"7\n", b"")
    assert read(tmp_path) == []


def test_brings_no_other_library_along(preloaded: Path) -> None:
    def loaded(**extra: str) -> set[str]:
        maps = subprocess.run(
            ["cat", "/proc/self/maps"], env=os.environ | extra, capture_output=True, text=True
        ).stdout
        return {line.split()[-1] for line in maps.splitlines() if ".so" in line}

    assert loaded(LD_PRELOAD=str(preloaded)) - loaded() == {str(preloaded)}


def test_variables_keep_what_is_preloaded_already() -> None:
    chosen = interposer.variables(
        Path("/x/sleeps.so"), Sleeps(3e-5, None), {"LD_PRELOAD": "/y/tcmalloc.so"}
    )

    assert chosen == {
        "LD_PRELOAD": "/x/sleeps.so:/y/tcmalloc.so",
        "DLTUNE_NODE": socket.gethostname(),
        "DLTUNE_NBCS": "0.000030000",
    }


def test_no_mpicc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPICC", raising=False)

    with pytest.raises(DltuneError, match=r"no mpicc next to .*/mpirun") as caught:
        interposer.build(tmp_path / "mpirun")

    assert caught.value.remedy is not None
    assert "with gloo, which blocks, it is not needed" in caught.value.remedy
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DltuneError, match="no mpicc on PATH"):
        interposer.build()


def test_no_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpicc = tmp_path / "mpicc"
    mpicc.write_text(f"#!/bin/sh\necho -I{tmp_path} -pthread\n")
    mpicc.chmod(0o755)
    monkeypatch.delenv("MPICC", raising=False)

    with pytest.raises(DltuneError, match=f"no mpi.h in {tmp_path}"):
        interposer.build(tmp_path / "mpirun")


def test_another_mpi_is_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MPICC", raising=False)
    mpicc = tmp_path / "mpicc"
    mpicc.write_text(f"#!/bin/sh\necho -I{tmp_path}\n")
    mpicc.chmod(0o755)
    (tmp_path / "mpi.h").write_text("#error not a whole MPI\n")

    with pytest.raises(
        DltuneError,
        match=r"sleeping background threads: .* failed with exit code 1 while building sleeps",
    ) as one:
        interposer.build(tmp_path / "mpirun")
    (tmp_path / "mpi.h").write_text("#error not a whole MPI, version 2\n")
    with pytest.raises(DltuneError) as two:
        interposer.build(tmp_path / "mpirun")

    assert str(one.value).split("building ")[1] != str(two.value).split("building ")[1]
