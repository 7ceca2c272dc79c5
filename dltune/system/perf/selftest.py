"""Counters against work that is known, so that a figure of theirs can be believed."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass

from dltune.base.errors import DltuneError
from dltune.system.perf import probe
from dltune.system.perf.events import parse
from dltune.system.perf.group import Group
from dltune.system.perf.perf_binding import load

TURNS = 50_000_000
PAGES = 4096
CPU_SECONDS = 0.1
TOLERANCE = 0.01


@dataclass(frozen=True)
class Outcome:
    """`sentence` says what was counted and what was known; `right`: None when it was not tried."""

    name: str
    right: bool | None
    sentence: str


def run() -> list[Outcome]:
    """Instructions of a known loop where there is a PMU, page faults of touched pages, task-clock
    between CPU and wall time. Takes under a second."""
    return [
        _told("instructions of a loop", _instructions),
        _told("page faults of touched pages", _page_faults),
        _told("task-clock of CPU time", _task_clock),
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
    loop = load().dltune_loop
    with Group([parse("instructions")]) as group:
        group.enable()
        done = loop(TURNS)
        group.disable()
        scaled = group.read().scaled()
    if done:
        return None, "dltune has no test loop for this architecture"
    if scaled is None:
        return False, "the counter never ran: another tool uses the CPU's counters"
    return _compared(scaled[0], 2 * TURNS, "instructions")


def _page_faults() -> tuple[bool, str]:
    """Private memory of small pages, each touched for the first time."""
    size = PAGES * mmap.PAGESIZE
    with (
        Group([parse("page-faults")]) as group,
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory,
    ):
        with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        first = ctypes.c_char.from_buffer(memory)
        group.enable()
        ctypes.memset(ctypes.addressof(first), 1, size)
        group.disable()
        del first
        counted = group.read().values[0]
    return _compared(counted, PAGES, "page faults")


def _task_clock() -> tuple[bool, str]:
    """CPU time leaves out what a host or an interrupt takes, wall time adds the waiting for a CPU;
    task-clock lies between them."""
    with Group([parse("task-clock")]) as group:
        wall, cpu = time.perf_counter(), time.thread_time()
        group.enable()
        while time.thread_time() - cpu < CPU_SECONDS:
            sum(range(1000))
        group.disable()
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        counted = group.read().values[0] / 1e9
    right = cpu * (1 - TOLERANCE) <= counted <= wall * (1 + TOLERANCE)
    return right, (
        f"counted {counted:.4f} seconds, {'between' if right else 'not between'} {cpu:.4f} of CPU "
        f"and {wall:.4f} of wall time, within {TOLERANCE:.0%}"
    )


def _compared(counted: float, known: int, what: str) -> tuple[bool, str]:
    right = abs(counted - known) <= TOLERANCE * known
    return right, (
        f"counted {counted:,.0f} of {known:,} {what}, "
        f"{'within' if right else 'not within'} {TOLERANCE:.0%}"
    )
