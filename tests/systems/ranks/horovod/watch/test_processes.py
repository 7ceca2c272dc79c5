"""Which processes of a job are its ranks."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pretended_ranks
import pytest

from dltune.system.proc import stat
from dltune.system.proc.stat import Tree
from dltune.systems.ranks import commands
from dltune.systems.ranks.horovod.watch import document
from dltune.systems.ranks.horovod.watch import watch as watching
from dltune.systems.ranks.horovod.watch.watch import Watch

# loads a library, and does one more thing at each line that it is sent
TORCH = """
import ctypes, mmap, os, sys
ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def libtorch(library: Path, tmp_path: Path) -> Path:
    """A library of PyTorch's name, in a package without metadata."""
    target = tmp_path / "site-packages" / "torch" / "lib" / "libtorch_cpu.so"
    target.parent.mkdir(parents=True)
    shutil.copy(library, target)
    return target


@contextlib.contextmanager
def running(libtorch: Path, told: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", TORCH, str(libtorch)],
        env={**os.environ, **told},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def do(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def handles(pid: int, *files: Path) -> int:
    """Those of this process that are of another one or of these files: what else it opens, other
    threads may."""
    of, count = (f"/proc/{pid}/", *map(str, files)), 0
    for handle in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # closed meanwhile
            told = Path(f"/proc/self/fdinfo/{handle}").read_text().split()
            is_pidfd = "Pid:" in told and told[told.index("Pid:") + 1] == str(pid)
            file = str(Path(f"/proc/self/fd/{handle}").readlink())
            count += is_pidfd or file.startswith(of)
    return count


def test_horovod_may_be_loaded_after_pytorch(library, libtorch):
    """As `import torch, horovod.torch` does."""
    with (
        running(libtorch, pretended_ranks.environment(1)) as process,
        Watch(Tree(process.pid)) as watch,
    ):
        watch._find()
        (first,) = watch.ranks.values()
        opened = handles(process.pid, library, libtorch)
        assert opened > 0
        do(process, "more = mmap.mmap(-1, 1 << 24)")
        watch._find()
        (same,) = watch.ranks.values()
        assert same is first  # with its counts
        do(process, f"ctypes.CDLL({str(library)!r}).start(2, 0)")
        watch._find()
        (seen,) = watch.ranks.values()
        assert handles(process.pid, library, libtorch) <= opened
        watch._count()
        (rank,) = document.assemble(watch, ("job",), None, False).ranks
    assert not first.cycles
    assert seen.cycles
    assert (rank.rank, rank.horovod, rank.pytorch) == (1, "0.28.1", None)


def test_pytorch_without_metadata_is_pytorch(libtorch):
    with (
        running(libtorch, {"RANK": "1", "WORLD_SIZE": "2"}) as process,
        Watch(Tree(process.pid)) as watch,
    ):
        watch._find()
        watch._count()
        (rank,) = document.assemble(watch, ("job",), None, False).ranks
    assert (rank.library, rank.pytorch, rank.horovod) == ("PyTorch", "?", None)


def test_threads_used_no_more_than_the_time_of_their_rank(libtorch, monkeypatch):
    """All run all the time, by a clock that goes on while dltune reads their counts."""
    pause = 0.0

    def counts(pid: int, tid: int, last: stat.Counts | None = None) -> stat.Counts | None:
        time.sleep(pause)
        found = read(pid, tid)
        return found and found._replace(cpu=time.monotonic())

    read = stat.counts
    monkeypatch.setattr(stat, "counts", counts)
    with (
        running(libtorch, {"RANK": "1", "WORLD_SIZE": "2"}) as process,
        Watch(Tree(process.pid)) as watch,
    ):
        watch._find()
        (rank,) = watch.ranks.values()
        for begin in (watch._count_threads, watch._from_now_on):
            pause = 0.0
            begin(rank)
            pause = 0.1
            watch._count_threads(rank)
            assert all(t.used.cpu <= rank.until - rank.since for t in rank.threads.values())


def test_a_workers_rank_is_its_parent(libtorch, monkeypatch):
    """DataLoader's workers have the library and the number of theirs, and may long do nothing."""
    monkeypatch.setattr(
        watching, "still_hung", lambda told, seen: dict.fromkeys((one.pid for one in seen), "told")
    )
    with (
        running(libtorch, {"RANK": "1", "WORLD_SIZE": "2"}) as process,
        Watch(Tree(process.pid)) as watch,
    ):
        # they end with their parent, whose end of the pipe is the only one
        do(process, "ends = os.pipe()")
        do(process, "os.fork() or (os.close(ends[1]), os.read(ends[0], 1), os._exit(0))")
        watch._find()
        assert len(watch.ranks) == 2
        watch._count()
        assert watch.stuck == {process.pid: "told"}
        assert "1 rank, 0 background threads found, 2 processes" in commands.watched(watch)
        assert [row[1] for row in commands.running(watch).rows] == [str(process.pid)]


def seen(
    rank: int, *, size: int = 4, background: int | None = None, ended_at: float | None = None
) -> SimpleNamespace:
    identity = SimpleNamespace(rank=rank, size=size)
    return SimpleNamespace(
        identity=identity, init=None, numbered=True, background=background, ended_at=ended_at
    )


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        # pids may start over
        ({(9, 1): seen(0), (2, 5): seen(0)}, (9, 1)),
        ({(8, 1): seen(0), (9, 5): seen(0, background=9)}, (9, 5)),
        # a worker outlives its rank
        ({(8, 1): seen(0, background=8, ended_at=3.0), (9, 5): seen(0)}, (8, 1)),
        # a launcher starts a rank again
        (
            {(8, 1): seen(0, background=8, ended_at=3.0), (9, 5): seen(0, background=9)},
            (9, 5),
        ),
        # torchrun, one of mpirun's two
        ({(8, 1): seen(0, size=2), (9, 5): seen(0)}, (9, 5)),
        ({(8, 1): seen(1, size=2), (9, 5): seen(0)}, (9, 5)),
    ],
)
def test_which_process_is_the_rank(others, chosen):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        watch = Watch(Tree(process.pid))
        watch.ranks = others
        assert watch.of_job() == [others[chosen]]
        process.kill()
