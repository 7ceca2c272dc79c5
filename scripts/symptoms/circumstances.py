"""What a complaint was made in, arranged here: containers, neighbours, data. For root."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dltune.native.build import cache_folder
from symptoms import Setting

sys.path.append(str(Path(__file__).parents[1] / "bench"))

from core_quotas import ROOT, core_quotas
from slow_store import mounted

RECORD, RECORDS = 128 * 128 * 3, 20_000
ROWS, COLUMNS = 131_072, 4096  # of float32: 2 GB
BUSY = "while True: pass"


@dataclass(frozen=True)
class Place:
    """Where a job is started: what comes before its command, and its own arguments."""

    enter: tuple[str, ...]
    arguments: tuple[str, ...]
    files: tuple[Path, ...]

    def cold(self) -> None:
        """What has been read of the data is read anew."""
        for path in self.files:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def arranged(setting: Setting) -> Iterator[Place]:
    """As long as the block lasts."""
    with ExitStack() as stack:
        enter: list[str] = []
        if setting.quota:
            [into] = stack.enter_context(core_quotas(1, setting.quota))
            _favour_group(Path(into[-1]).parent)
            enter += into
        if setting.cores:
            limits = {"cpuset.cpus": setting.cores, "cpuset.mems": "0"}
            enter += stack.enter_context(_container("cpuset", limits))
        if setting.memory:
            first = (ROOT / "memory").exists()
            limit = "memory.limit_in_bytes" if first else "memory.max"
            limits = {limit: str(setting.memory)}
            enter += stack.enter_context(_container("memory", limits))
        for _ in range(setting.beside):
            stack.enter_context(_neighbour())
        arguments, files = (), ()
        if setting.data == "lmdb":
            folder = _database()
            store = stack.enter_context(mounted(folder.parent))
            path = store.path / folder.name
            arguments, files = (str(path),), (path / "data.mdb",)
        elif setting.data == "rows":
            path = _rows()
            arguments, files = (str(path),), (path,)
        yield Place(tuple(enter), arguments, files)


@contextmanager
def _container(controller: str, limits: dict[str, str]) -> Iterator[tuple[str, ...]]:
    first = ROOT / controller  # where the first version of control groups has it
    if not first.exists():
        (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
    group = (first if first.exists() else ROOT) / f"dl{os.getpid()}{controller}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name).write_text(value)
        yield "sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")
    finally:
        group.rmdir()


@contextmanager
def _neighbour() -> Iterator[None]:
    """In a session of its own, as another user's: the scheduler is fair between sessions."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
    favour(process.pid)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def favour(pid: int) -> None:
    """Before what else the machine does: both sides of a comparison alike."""
    os.setpriority(os.PRIO_PROCESS, pid, -15)
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text("-15")


def _favour_group(group: Path) -> None:
    """A group has its own weight, whatever its processes have: as much as `favour` gives one."""
    first = group / "cpu.shares"  # 1024 is what an ordinary process has, cpu.weight's is 100
    if first.exists():
        first.write_text("29154")
    else:
        (group / "cpu.weight").write_text("2847")


def _database() -> Path:
    """Records of noise, kept for the next time."""
    import lmdb

    path = cache_folder() / "symptoms" / "images"
    if not path.exists():
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        noise = random.Random(0).randbytes(RECORD + 8192)
        with lmdb.open(str(unfinished), map_size=2 * RECORD * RECORDS) as env:
            for begin in range(0, RECORDS, 1000):
                with env.begin(write=True) as transaction:
                    for i in range(begin, begin + 1000):
                        record = noise[i % 8192 : i % 8192 + RECORD]
                        transaction.put(b"%06d" % i, record, append=True)
        unfinished.rename(path)
    return path


def _rows() -> Path:
    """Numbers in rows, kept for the next time."""
    import numpy as np

    path = cache_folder() / "symptoms" / "rows"
    if not path.exists():
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        some = np.random.default_rng(0).random((1024, COLUMNS), dtype=np.float32)
        with open(unfinished, "wb") as file:
            for _ in range(ROWS // len(some)):
                file.write(some.tobytes())
        unfinished.rename(path)
    return path
