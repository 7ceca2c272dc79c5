"""Horovod's background thread over MPI: plain against each method that replaces spinning.

    python scripts/bench/bench_sleeps.py plain non-blocking=30e-6 global-sleep=1 \\
        non-blocking=30e-6,rest=50e-3 yield \\
        [--bind core] [--rounds 10] [--turn 2] \\
        -- python scripts/examples/train_horovod.py --batch 16

Starts a job of two ranks for each setting and lets them take turns: one runs, the ranks of the
others are stopped. The job must take train_horovod.py's --record. Prints for each setting the time
of a step, the background threads' share of a core and their wait in the run queue (medians over
turns; of both ranks), and how much faster a step is than the first setting's, with a 95 % interval
over paired turns. Losses must be the same everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dltune.stats import paired_ratio
from dltune.systems.ranks.allreduce.section import Sleeps
from dltune.systems.ranks.horovod.preload import interposer

RANKS = 2
WARM_STEPS = 8
START_SECONDS = 120.0
# of each turn, left out: caches and threads come back
RETURN_SECONDS = 0.3


@dataclass(frozen=True)
class Setting:
    name: str
    sleeps: Sleeps
    yielding: bool

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read "plain", or some of "yield", "non-blocking=SECONDS", "global-sleep=CYCLES" and
        "rest=SECONDS", joined by commas."""
        given = dict(part.partition("=")[::2] for part in text.split(","))
        if unknown := given.keys() - {"plain", "yield", "non-blocking", "global-sleep", "rest"}:
            raise argparse.ArgumentTypeError(f"unknown setting {', '.join(sorted(unknown))}")
        return cls(
            text,
            Sleeps(
                float(given["non-blocking"]) if "non-blocking" in given else None,
                int(given["global-sleep"]) if "global-sleep" in given else None,
                float(given["rest"]) if "rest" in given else None,
            ),
            "yield" in given,
        )


@dataclass(frozen=True)
class Turn:
    """Seconds of a step; background threads' share of a core and of a second in the run queue."""

    step: float
    cpu: float
    wait: float


@dataclass
class Job:
    setting: Setting
    folder: Path
    process: subprocess.Popen[bytes]
    turns: list[Turn] = field(default_factory=list)

    def record(self, rank: int) -> list[list[str]]:
        text = (self.folder / f"rank{rank}").read_text()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def losses(self, rank: int) -> list[str]:
        return [loss for _, loss in self.record(rank)[1:]]

    def await_steps(self) -> None:
        over = time.monotonic() + START_SECONDS
        while time.monotonic() < over and self.process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if all(len(self.record(rank)) > WARM_STEPS for rank in range(RANKS)):
                    return
            time.sleep(0.2)
        raise SystemExit(f"{self.setting.name}: did not train\n{(self.folder / 'log').read_text()}")

    def send(self, number: int) -> None:
        for rank in range(RANKS):
            with contextlib.suppress(FileNotFoundError, IndexError, ProcessLookupError):
                os.kill(int(self.record(rank)[0][0]), number)

    def used(self) -> tuple[float, float]:
        """Seconds on a core and in the run queue, of both background threads."""
        cpu = wait = 0.0
        for rank in range(RANKS):
            pid, thread = self.record(rank)[0][:2]
            ran, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
            cpu, wait = cpu + int(ran) / 1e9, wait + int(waited) / 1e9
        return cpu, wait

    def turn(self, seconds: float) -> None:
        self.send(signal.SIGCONT)
        time.sleep(RETURN_SECONDS)
        began, before = time.monotonic(), self.used()
        time.sleep(seconds)
        ended, after = time.monotonic(), self.used()
        self.send(signal.SIGSTOP)
        if self.process.poll() is not None:
            raise SystemExit(f"{self.setting.name}: ended\n{(self.folder / 'log').read_text()}")
        ends = [t for line in self.record(0)[1:] if began <= (t := float(line[0])) <= ended]
        cpu, wait = ((b - a) / (ended - began) / RANKS for a, b in zip(before, after, strict=True))
        self.turns.append(Turn((ends[-1] - ends[0]) / (len(ends) - 1), cpu, wait))

    def end(self) -> None:
        self.send(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.kill()


def start(setting: Setting, folder: Path, preloaded: Path, bind: str, command: list[str]) -> Job:
    folder.mkdir()
    launch = ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", bind]
    if setting.yielding:
        launch += ["--mca", "mpi_yield_when_idle", "1"]
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    # "plain" is without the library, not with the library switched off
    if setting.sleeps != Sleeps(None, None):
        environment |= interposer.variables(preloaded, setting.sleeps, environment)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*launch, *command, "--record", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    return Job(setting, folder, process)


def compare_losses(jobs: list[Job]) -> int:
    """Steps that all jobs have made, with the same losses."""
    common = 0
    for rank in range(RANKS):
        losses = [job.losses(rank) for job in jobs]
        common = min(map(len, losses))
        for job, mine in zip(jobs, losses, strict=True):
            if mine[:common] != losses[0][:common]:
                raise SystemExit(f"{job.setting.name}: other losses than {jobs[0].setting.name}")
    return common


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="+", type=Setting.parse)
    parser.add_argument("--bind", choices=["core", "none"], default="none")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=2.0, help="seconds")
    divider = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:divider])
    command = sys.argv[divider + 1 :]
    if not command:
        parser.error("give the job after --")
    if not (launcher := shutil.which("mpirun")):
        parser.error("there is no mpirun on PATH")
    preloaded = interposer.build(Path(launcher))
    jobs: list[Job] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for number, setting in enumerate(args.settings):
                job = start(setting, Path(scratch) / f"{number}", preloaded, args.bind, command)
                jobs.append(job)
                job.await_steps()
                job.send(signal.SIGSTOP)
            for round_ in range(args.rounds):
                for job in jobs if round_ % 2 else reversed(jobs):
                    job.turn(args.turn)
            steps = compare_losses(jobs)
        finally:
            for job in jobs:
                job.end()
    first = jobs[0]
    print(f"bound to: {args.bind}; {args.rounds} turns of {args.turn} s; {steps} equal losses")
    for job in jobs:
        pairs = [(a.step, b.step) for a, b in zip(first.turns, job.turns, strict=True)]
        faster = paired_ratio(pairs)
        print(
            f"{job.setting.name:18}  step {1e3 * median([t.step for t in job.turns]):6.1f} ms"
            f"  background {100 * median([t.cpu for t in job.turns]):5.1f} % of a core"
            f"  waits {100 * median([t.wait for t in job.turns]):5.1f} %"
            f"  faster x{faster.median:.3f} ({faster.low:.3f} to {faster.high:.3f})"
        )


if __name__ == "__main__":
    main()
