"""The ranks of a node read by one of them, in processes of their own; some are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from making import made

from dltune.base.errors import UsageError
from dltune.systems.lmdb import Options, Reader
from dltune.systems.lmdb.reader import node
from dltune.systems.lmdb.reader.node import Filling

# prints what it read as JSON lines; waits for a line before each iteration when told to
RANK = """
import itertools, json, sys, zlib
from dltune.systems.lmdb import Options, Reader
told = json.loads(sys.argv[1])
options = Options(**told["options"])
with Reader(told["path"], batch=told["batch"], shuffle=told["shuffle"], options=options,
            iterations=told["iterations"]) as reader:
    for records in reader:
        if told["asks"]:
            sys.stdin.readline()
        print(json.dumps([[r.key.decode(), zlib.crc32(r.value)] for r in records]), flush=True)
print("done", flush=True)
"""


@contextmanager
def ranks(
    path: Path, size: int, job: str = "test", *, ranks_here: list[int] | None = None, **told: object
) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of the ranks of a node; those that still run are ended."""
    here = list(range(size)) if ranks_here is None else ranks_here
    arguments = {"path": str(path), "batch": 3, "shuffle": None, "iterations": 40, "asks": False}
    arguments |= {"options": {"memory": 800_000}, **told}
    processes = []
    for local, rank in enumerate(here):
        names = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local, "LOCAL_SIZE": len(here)}
        environment = {
            **os.environ,
            **{f"HOROVOD_{name}": str(value) for name, value in names.items()},
            "DLTUNE_IO_JOB": f"{job}-{os.getpid()}",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", RANK, json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def told(process: subprocess.Popen[str]) -> list[list[list[object]]]:
    """All iterations of a rank, which must have ended well."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    *lines, last = out.splitlines()
    assert last == "done"
    return [json.loads(line) for line in lines]


def alone(path: Path, rank: int, size: int, shuffle: int | None) -> list[list[list[object]]]:
    """What the rank reads by itself."""
    import zlib

    with Reader(
        path, batch=3, shuffle=shuffle, rank=rank, size=size, iterations=40, options=Options()
    ) as reader:
        return [[[r.key.decode(), zlib.crc32(r.value)] for r in records] for records in reader]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node") / "db"
    made(folder, [1000 + 37 * i for i in range(150)])
    return folder


@pytest.mark.parametrize("shuffle", [None, 5])
@pytest.mark.parametrize("direct", [False, True])
def test_ranks_get_what_each_would_read_by_itself(
    path: Path, shuffle: int | None, direct: bool
) -> None:
    chosen = {"memory": 800_000, "direct": direct}
    with ranks(path, 3, shuffle=shuffle, options=chosen) as processes:
        got = [told(process) for process in processes]
    assert got == [alone(path, rank, 3, shuffle) for rank in range(3)]


def test_two_nodes_that_stagger(path: Path) -> None:
    """Ranks 0 to 3 on two nodes, one token: the same records, one node reading at a time."""
    chosen = {"memory": 800_000, "stagger": 1}
    with (
        ranks(path, 4, "one", ranks_here=[0, 2], options=chosen) as one,
        ranks(path, 4, "two", ranks_here=[1, 3], options=chosen) as two,
    ):
        got = [told(process) for process in [*one, *two]]
    assert got == [alone(path, rank, 4, None) for rank in (0, 2, 1, 3)]


def one_step(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def traces(pid: int) -> set[Path]:
    """What a process would leave behind in shared memory if it were killed: not what others do."""
    mapped = Path(f"/proc/{pid}/maps").read_text().split()
    opened = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            opened.append(os.readlink(descriptor))  # noqa: PTH115 - a memfd's is no path
    return {Path(name) for name in (*mapped, *opened) if name.startswith("/dev/shm/")}


def named_sockets(path: Path, job: str) -> list[str]:
    """Sockets by which the ranks of a job meet."""
    name = node.meeting_name({"DLTUNE_IO_JOB": f"{job}-{os.getpid()}"}, path / "data.mdb", 0)
    sockets = Path("/proc/net/unix").read_text().splitlines()
    return [line for line in sockets if line.endswith(" @" + name[1:].decode())]


def test_a_killed_reader_is_told_and_leaves_nothing(path: Path) -> None:
    with ranks(path, 3, "killed", asks=True, iterations=None) as processes:
        for process in processes:
            assert one_step(process).startswith("[[")
        reader = processes[0]
        assert named_sockets(path, "killed")
        shared = {trace for process in processes for trace in traces(process.pid)}
        os.kill(reader.pid, signal.SIGKILL)
        reader.wait()
        for process in processes[1:]:
            for _ in range(200):  # what had been read is still to be had
                if not one_step_or_end(process):
                    break
            _, error = process.communicate(timeout=120)
            assert process.returncode != 0
            assert "the process that reads for this node has ended" in error
    assert not [trace for trace in shared if trace.exists()]
    assert not named_sockets(path, "killed")


def one_step_or_end(process: subprocess.Popen[str]) -> str:
    try:
        return one_step(process)
    except BrokenPipeError:
        return ""


def test_a_killed_rank_does_not_stop_the_others(path: Path) -> None:
    with ranks(path, 3, "rank", asks=True, iterations=60) as processes:
        for process in processes:
            one_step(process)
        processes[1].kill()
        for _ in range(59):
            assert one_step(processes[0]).startswith("[[")
            assert one_step(processes[2]).startswith("[[")
        assert processes[0].stdout is not None
        assert processes[0].stdout.readline() == "done\n"


def test_an_error_reaches_every_rank(path: Path) -> None:
    with ranks(path, 2, "error", options={"memory": 16384}) as processes:
        for process in processes:
            _, error = process.communicate(timeout=120)
            assert process.returncode != 0
            assert (
                "UsageError: memory=16384 is too small: one iteration of this node takes" in error
            )


def test_ranks_that_do_not_come_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "WAIT_SECONDS", 0.3)
    for name, value in {"RANK": 0, "SIZE": 2, "LOCAL_RANK": 0, "LOCAL_SIZE": 2}.items():
        monkeypatch.setenv(f"HOROVOD_{name}", str(value))
    with Reader(path, batch=1) as reader, pytest.raises(UsageError, match="did not open"):
        next(reader)
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    with (
        Reader(path, batch=1) as reader,
        pytest.raises(UsageError, match=r"local rank 0.* did not open"),
    ):
        next(reader)
    with Reader(path, batch=1, options=Options(node=False)) as reader:
        assert len(next(reader)) == 1


def test_ranks_that_have_come_wait_for_the_index_as_long_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"\0dltune-test-{os.getpid()}".encode()
    timeouts: list[float | None] = []
    received = node._received

    def noted(connection: socket.socket) -> tuple[node.Message, list[int]]:
        timeouts.append(connection.gettimeout())
        return received(connection)

    monkeypatch.setattr(node, "_received", noted)

    def indexes(ranks: list[int], memory: node.Memory) -> Filling:
        raise UsageError("there are no records")

    def leads() -> None:
        with pytest.raises(UsageError, match="there are no records"):
            node.lead(name, 0, 2, 1 << 20, indexes)

    leader = threading.Thread(target=leads)
    leader.start()
    with pytest.raises(UsageError, match="there are no records"):
        node.join(name, 1)
    leader.join()
    assert timeouts == [node.WAIT_SECONDS, None]  # until all have come, and then


def test_jobs_are_told_apart(path: Path) -> None:
    def name(**environ: str) -> bytes:
        return node.meeting_name(environ, path, 0)

    assert name(SLURM_JOB_ID="1") == name(SLURM_JOB_ID="1", HOME="/")
    assert name(SLURM_JOB_ID="1") != name(SLURM_JOB_ID="2")
    assert name() == name()
    assert node.meeting_name({}, path, 1) != name()
