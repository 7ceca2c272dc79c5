"""Counters against work that is known, so that a figure of theirs can be believed."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass

from dltune.errors import DltuneError
from dltune.machine.perf import probe
from dltune.machine.perf.events import parse
from dltune.machine.perf.group import Group
from dltune.machine.perf.library import library

TURNS = 50_000_000
PAGES = 4096
CPU_SECONDS = 0.1
TOLERANCE = 0.01
# a clock's reading and the other's lie apart by what the host does in between
CLOCK_TOLERANCE = 0.05
ATTEMPTS = 5


@dataclass(frozen=True)
class Outcome:
    """`sentence` says what was counted and what was known; `right`: None when it was not tried."""

    name: str
    right: bool | None
    sentence: str


def run() -> list[Outcome]:
    """Instructions of a known loop where there is a PMU, page faults of touched pages, task-clock
    against CPU time. Takes under a second."""
    return [
        _told("instructions of a loop", _instructions),
        _told("page faults of touched pages", _page_faults),
        _told("task-clock against CPU time", _task_clock),
    ]


def _told(name: str, test: Callable[[], tuple[bool | None, str]]) -> Outcome:
    try:
        right, sentence = test()
    except DltuneError as error:
        return Outcome(name, None, str(error))
    return Outcome(name, right, sentence)


def _instructions() -> tuple[bool | None, str]:
    if refused := probe.available().hardware:
        return None, refused.reason
    loop = library().dltune_loop
    with Group([parse("instructions")]) as group:
        group.enable()
        done = loop(TURNS)
        group.disable()
        scaled = group.read().scaled()
    if done:
        return None, "there is no known loop for this architecture"
    if scaled is None:
        return False, "the counter had no time on the CPU's counters; another tool holds them"
    return _compared(scaled[0], 2 * TURNS, "instructions", TOLERANCE)


def _page_faults() -> tuple[bool, str]:
    """Private memory of small pages, each touched for the first time."""
    size = PAGES * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        first = ctypes.c_char.from_buffer(memory)
        with Group([parse("page-faults")]) as group:
            group.enable()
            ctypes.memset(ctypes.addressof(first), 1, size)
            group.disable()
            counted = group.read().values[0]
        del first
    return _compared(counted, PAGES, "page faults", TOLERANCE)


def _task_clock() -> tuple[bool, str]:
    outcome = False, ""
    for _ in range(ATTEMPTS):  # a host that takes the CPU away between two clocks spoils one
        with Group([parse("task-clock")]) as group:
            began = time.thread_time()
            group.enable()
            while time.thread_time() - began < CPU_SECONDS:
                sum(range(1000))
            group.disable()
            spent = time.thread_time() - began
            counted = group.read().values[0] / 1e9
        outcome = _compared(counted, spent, "seconds", CLOCK_TOLERANCE)
        if outcome[0]:
            break
    return outcome


def _compared(counted: float, known: float, what: str, tolerance: float) -> tuple[bool, str]:
    right = abs(counted - known) <= tolerance * known
    figures = "{:.4f} of {:.4f}" if isinstance(known, float) else "{:,.0f} of {:,.0f}"
    return right, (
        f"counted {figures.format(counted, known)} {what}, "
        f"{'within' if right else 'not within'} {tolerance:.0%}"
    )
