"""A job's speed by its own clock (clock.py), and how its memory grows."""

from __future__ import annotations

import contextlib
import math
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import psutil

from dltune.system.proc.process import cpu_seconds
from symptoms.circumstances import favour

WARM = 0.3  # of what the clock told is left out: what TensorFlow builds, caches that fill
STARTED = 90.0  # seconds within which the first step must be told
LINE = re.compile(r"step (\d+) ([\d.]+) s loss")


@dataclass(frozen=True)
class Speed:
    """Steps per second, and bytes per second by which the job's processes grow."""

    rate: float
    growth: float


def speed(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Speed:
    """Of a job that is ended after so many seconds of steps. Raises RuntimeError with its last
    words where it tells no steps."""
    began = time.monotonic()
    told: list[tuple[int, float, int]] = []
    words: list[str] = []
    with _started(command, environment, STARTED + seconds) as (process, lines):
        for line in lines:
            words.append(line)
            if match := LINE.match(line):
                if not told:  # a launcher may have given its processes sessions of their own
                    for one in _family(process.pid):
                        favour(one.pid)
                told.append((int(match[1]), float(match[2]), _resident(process.pid)))
                if told[-1][1] - told[0][1] > seconds:
                    break
    if len(told) < 3:
        raise RuntimeError(
            f"{' '.join(command)}: {len(told)} times told in {time.monotonic() - began:.0f} s:\n"
            + "".join(words[-20:])
        )
    first, last = told[int(WARM * len(told))], told[-1]
    passed = last[1] - first[1]
    return Speed((last[0] - first[0]) / passed, (last[2] - first[2]) / passed)


def in_turns(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    pairs: int,
    begin: Callable[[int], Callable[[], object]],
) -> list[tuple[float, float]]:
    """Steps per second of one job, in pairs of turns: while nothing looks at it, and while what
    `begin` makes does, which is given the pid that works most, and gives what ends it."""
    rates: list[float] = []
    clock, since = math.inf, math.inf  # the job's zero on ours; when this turn began
    first: tuple[int, float] | None = None
    limit = STARTED + 3 * pairs * seconds
    with _started(command, environment, limit) as (process, lines), contextlib.ExitStack() as looks:
        for line in lines:
            if not (match := LINE.match(line)):
                continue
            steps, at = int(match[1]), float(match[2])
            clock = min(clock, time.monotonic() - at)
            if since == math.inf:  # what it builds first, and caches that fill
                since = clock + at + WARM * seconds
            if first is None:
                first = (steps, at) if clock + at > since else None
            elif at - first[1] >= seconds:
                rates.append((steps - first[0]) / (at - first[1]))
                if len(rates) == 2 * pairs:
                    break
                if len(rates) % 2:
                    works = max(_family(process.pid), key=lambda one: cpu_seconds(one.pid) or 0.0)
                    looks.callback(begin(works.pid))
                else:
                    looks.close()
                first, since = None, time.monotonic()
    return list(zip(rates[::2], rates[1::2], strict=False))


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], limit: float
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The job and what it says, ended after `limit` seconds, and with the block."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    favour(process.pid)
    guard = threading.Timer(limit, ended, (process,))
    guard.start()
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        guard.cancel()
        ended(process)
        process.stdout.close()


def ended(process: subprocess.Popen[str]) -> None:
    """The process and all that it has started, by SIGTERM and then by SIGKILL."""
    family = _family(process.pid)[1:]
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=5)
    for one in left:
        one.kill()
    if left:
        psutil.wait_procs(left, timeout=5)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _family(pid: int) -> list[psutil.Process]:
    """The process and all that it has started, as far as they are still there."""
    try:
        return [process := psutil.Process(pid), *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident(pid: int) -> int:
    total = 0
    for one in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total
