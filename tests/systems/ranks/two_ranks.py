"""Real jobs of two Horovod ranks on this machine, with output to files and an end in sight."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

Controller = Literal["gloo", "mpi"]
PYTHON = sys.executable
TRAIN = Path(__file__).parents[3] / "scripts" / "examples" / "train_horovod.py"
LAUNCHERS: dict[Controller, tuple[str, ...]] = {
    # gloo waits 30 s for the other rank of itself, which may be late on a busy machine
    "gloo": ("horovodrun", "-np", "2", "--gloo", "--gloo-timeout-seconds", "120"),
    "mpi": ("mpirun", "-np", "2", "--oversubscribe"),
}
# seconds after which a job is ended: a start takes some 15 on an idle machine, and eight times as
# long on a core that others want
WAIT = 480.0
# that job which several tests compare with others: one thread, whose kernels sum in one order
STEPS, BLOCKS = 12, 3
ONE_THREAD = (TRAIN, "--steps", STEPS, "--blocks", BLOCKS, "--intra", 1, "--inter", 1)


def missing(controller: Controller) -> str | None:
    """Why no job of this kind can run here; None when it can."""
    if not (Path(PYTHON).parent / "horovodrun").exists():
        return "Horovod is not installed: make horovod"
    if controller == "mpi" and not (Path(PYTHON).parent / "mpirun").exists():
        return "there is no Open MPI beside this Python"
    return None


def environment(**extra: str) -> dict[str, str]:
    """This Python's launchers first; Open MPI starts for root too."""
    made = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    made["PATH"] = os.pathsep.join([str(Path(PYTHON).parent), made.get("PATH", os.defpath)])
    made["TF_CPP_MIN_LOG_LEVEL"] = "2"
    return made | extra


def free_port() -> int:
    """One that the kernel gives to nobody who asks for any: none takes it until a launcher does."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, max(first, 20_000))
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


@dataclass
class Running:
    """A started job. `pids` of its ranks can be asked once each has told its own."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def stdout(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    def wait(self, timeout: float = WAIT) -> int:
        """Its exit code. Raises TimeoutExpired with what it has said."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"no end after {timeout} s\n{self.stdout}\n{self.stderr}"
            ) from error

    def rank(self, rank: int) -> Recorded:
        """What `train_horovod.py --record FOLDER/record` has told so far."""
        return recorded(self.folder / "record" / f"rank{rank}")


@dataclass
class Recorded:
    """A rank of train_horovod.py. `threads`: those that hvd.init() added, the background one
    first; `ended`: monotonic seconds of each step's end; `parameters`: a digest, at the end."""

    pid: int
    threads: tuple[int, ...]
    ended: tuple[float, ...]
    losses: tuple[float, ...]
    parameters: str | None


def recorded(path: Path) -> Recorded:
    """Raises AssertionError when the rank has not begun to train."""
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    assert lines, f"{path.name} has not begun to train"
    pid, *threads = map(int, lines[0].split())
    steps = [line.split() for line in lines[1:] if not line.startswith("parameters")]
    digests = [line.split()[1] for line in lines[1:] if line.startswith("parameters")]
    return Recorded(
        pid,
        tuple(threads),
        tuple(float(when) for when, _ in steps),
        tuple(float(loss) for _, loss in steps),
        digests[0] if digests else None,
    )


@dataclass
class Trained:
    """A job of train_horovod.py that has ended well."""

    said: str
    folder: Path
    ranks: tuple[Recorded, Recorded]


def trained(running: Running) -> Trained:
    """Waits for the job's end."""
    assert running.wait() == 0, running.stdout + running.stderr
    return Trained(running.stderr, running.folder, (running.rank(0), running.rank(1)))


def dltune(*arguments: object) -> tuple[str, ...]:
    """A dltune to start a job under."""
    return (PYTHON, "-m", "dltune", *map(str, arguments), "--")


@contextlib.contextmanager
def job(
    folder: Path,
    controller: Controller,
    script: Sequence[object] = (TRAIN,),
    *,
    under: Sequence[str] = (),
    env: dict[str, str] | None = None,
    launcher: Sequence[str] | None = None,
) -> Iterator[Running]:
    """Two ranks of `script`, with `dltune ... --` before the launcher when `under` says so.

    train_horovod.py's record goes to FOLDER/record. Whatever of it still runs at the end of the
    block is ended.
    """
    record = ("--record", str(folder / "record")) if script[0] == TRAIN else ()
    command = [
        *under,
        *(launcher or LAUNCHERS[controller]),
        PYTHON,
        *map(str, script),
        *record,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(**(env or {})),
            start_new_session=True,
        )
    try:
        yield Running(process, folder)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Launchers put ranks into sessions of their own: what they started is known by its parents."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.kill()
    process.wait()
