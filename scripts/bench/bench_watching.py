"""What watching costs the watched: a two-rank job with `dltune horovod-report` on it, and without,
in turns within one run of the job (the watcher is stopped and goes on).

    python scripts/bench/bench_watching.py [--controller gloo|mpi] [--pairs 45] [--turn 1.5]
        [-- ARGS]

ARGS go to scripts/examples/train_horovod.py. Prints the median of the paired ratios of step times
and its 95 % interval, and what the watcher used of a CPU while it ran.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from dltune.stats import paired_ratio

TRAIN = Path(__file__).parents[1] / "examples" / "train_horovod.py"
LAUNCHERS = {
    "gloo": ("horovodrun", "-np", "2", "--gloo"),
    "mpi": ("mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"),
}
# seconds: before the first turn the watcher has found what it looks for; a turn's first steps are
# left out
SETTLED, LEFT_OUT = 8.0, 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--controller", choices=LAUNCHERS, default="gloo")
    parser.add_argument("--pairs", type=int, default=45)
    parser.add_argument("--turn", type=float, default=1.5, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is started is ended then too
    with tempfile.TemporaryDirectory() as folder:
        launcher = LAUNCHERS[options.controller]
        with (
            started(launcher, options.arguments, Path(folder)) as job,
            watching(job.pid) as watcher,
        ):
            time.sleep(SETTLED)
            turns, cpu = taken(watcher, options.pairs, options.turn)
        ended = ends(Path(folder) / "rank0")
    times = [step_time(ended, begin, end) for begin, end in turns]
    # watched and plain, plain and watched, ...: a drift of the machine cancels out
    pairs = [
        (b, a) if index % 2 else (a, b)
        for index, (a, b) in enumerate(zip(times[::2], times[1::2], strict=True))
    ]
    interval = paired_ratio(pairs)
    result = {
        "pairs": len(pairs),
        "plain_ms": median([plain for _, plain in pairs]) * 1e3,
        "watched_ms": median([watched for watched, _ in pairs]) * 1e3,
        "ratio": interval.median,
        "low": interval.low,
        "high": interval.high,
        "watcher": cpu,
    }
    if options.json:
        print(json.dumps(result))
        return
    print(
        f"{options.controller}, {len(pairs)} pairs of {options.turn:g} s: plain "
        f"{result['plain_ms']:.1f} ms, watched {result['watched_ms']:.1f} ms; ratio "
        f"{interval.median:.4f} (95 %: {interval.low:.4f} to {interval.high:.4f}); the watcher "
        f"took {cpu:.1%} of a CPU"
    )


@contextlib.contextmanager
def started(
    launcher: tuple[str, ...], arguments: list[str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The job, once both ranks train."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    train = (sys.executable, str(TRAIN), "--steps", "1000000", "--record", str(folder))
    with open(folder / "out", "wb") as out:
        job = subprocess.Popen(
            [*launcher, *train, *arguments], env=environment, stdout=out, stderr=out
        )
    try:
        while any(len(ends(folder / f"rank{rank}")) < 20 for rank in (0, 1)):
            if job.poll() is not None:
                sys.exit((folder / "out").read_text())
            time.sleep(0.5)
        yield job
    finally:
        job.terminate()
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            job.kill()


@contextlib.contextmanager
def watching(pid: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dltune", "horovod-report", "--json", "--pid", str(pid)]
    with subprocess.Popen(
        [*command, "--seconds", "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as watcher:
        try:
            yield watcher
        finally:
            watcher.send_signal(signal.SIGCONT)
            watcher.send_signal(signal.SIGINT)


def taken(
    watcher: subprocess.Popen[bytes], pairs: int, seconds: float
) -> tuple[list[tuple[float, float]], float]:
    """The turns (begin and end, monotonic), the watcher running in the first of each even pair and
    the second of each odd one; what it used of a CPU while it ran."""
    turns = []
    clock = ~watcher.pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    before = time.clock_gettime(clock)
    for pair in range(pairs):
        for turn in (0, 1):
            runs = turn == pair % 2
            watcher.send_signal(signal.SIGCONT if runs else signal.SIGSTOP)
            begin = time.monotonic()
            time.sleep(seconds)
            turns.append((begin + LEFT_OUT, time.monotonic()))
    return turns, (time.clock_gettime(clock) - before) / (pairs * seconds)


def ends(record: Path) -> list[float]:
    """When each step ended."""
    if not record.exists():
        return []
    text = record.read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()[1:]
    return [float(line.split()[0]) for line in lines if not line.startswith("parameters")]


def step_time(ended: list[float], begin: float, end: float) -> float:
    """The mean time of the steps that lie between. Exits when there are too few."""
    inside = ended[bisect.bisect_left(ended, begin) : bisect.bisect_right(ended, end)]
    if len(inside) < 3:
        sys.exit(f"only {len(inside)} steps ended in a turn: give a longer --turn")
    return (inside[-1] - inside[0]) / (len(inside) - 1)


if __name__ == "__main__":
    main()
