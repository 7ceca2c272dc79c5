"""Processes that still run, known by what they were started with."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# a variable of the environment that only one test's processes have
MARK = "DLTUNE_TEST_MARK"


def with_argument(argument: object) -> list[int]:
    """Those with this in their command line."""
    return [pid for pid, words in _processes("cmdline") if str(argument).encode() in words]


def with_mark(mark: str) -> list[int]:
    """Those with this mark in the environment that they were started with."""
    return [pid for pid, words in _processes("environ") if f"{MARK}={mark}".encode() in words]


def remaining(find: Callable[[str], list[int]], by: object) -> list[int]:
    """Whom `find` finds by it after a moment: what was killed ends when the kernel comes to it, and
    a busy machine may keep it from that for a while."""
    until = time.monotonic() + 60
    while find(str(by)) and time.monotonic() < until:
        time.sleep(0.02)
    return find(str(by))


def interrupted(running: subprocess.Popen[bytes]) -> int:
    """How many Ctrl-C it took to end it, one a minute. One that comes while TensorFlow removes a
    batch's executor, or Python any other object, is printed and ignored by the interpreter."""
    for pressed in range(1, 5):
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(timeout=60)
            return pressed
    raise AssertionError("it does not end")


def _processes(file: str) -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / file).read_bytes()
            except OSError:
                continue
