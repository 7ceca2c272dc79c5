"""Measure the roofs: every case in turn, again and again, the most of each.

Turns are short, and the turns of a case are spread over all of the time. Other work of the machine
or its hypervisor can then spoil many turns of each case, but not all.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from dltune.base import files
from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.roofs import (
    SCHEMA,
    Bandwidth,
    Cache,
    Peak,
    Roofs,
)
from dltune.system import cpuinfo
from dltune.system.roofs import kernels
from dltune.system.roofs.fingerprint import fingerprint, unknown
from dltune.system.roofs.kernels import Kernel
from dltune.system.roofs.levels import Level, levels, room
from dltune.system.roofs.roofs_binding import Memory, Refused, peak

# about the seconds of a turn: long enough for threads that begin some microseconds apart, short
# enough to fit between two interruptions by other work
TURN = 0.5e-3
LEAST_TURNS, TRIALS = 10, 3
# a case is settled when its best turn is no accident: so many turns came so near to it
SETTLING, NEAR = 3, 0.02
_TRIAL = 1 << 12  # rounds of a kernel, to learn how long they take
# share of the available memory; the rest is left to other processes
MOST_MEMORY = 0.25

_WAYS = ("read", "triad")
# a function of the number of repetitions: seconds, and the work done in them
Turn: TypeAlias = Callable[[int], tuple[float, int]]


@dataclass
class Case:
    """A case. `turn(n)` works n times and returns seconds and the work done in them. `times`: the n
    of a turn of about TURN. `rates`: the work per second of each turn so far."""

    turn: Turn
    times: int = 1
    rates: list[float] = field(default_factory=list)

    def calibrate(self, trial: int) -> None:
        """Set `times` from the shortest of some trials: other work only adds to it. Raises
        Refused."""
        seconds = min(self.turn(trial)[0] for _ in range(TRIALS))
        self.times = max(1, round(trial * TURN / seconds))

    def run(self) -> None:
        seconds, work = self.turn(self.times)
        self.rates.append(work / seconds)

    @property
    def settled(self) -> bool:
        best = sorted(self.rates)[-SETTLING:]
        return len(self.rates) >= LEAST_TURNS and best[0] >= best[-1] * (1 - NEAR)


@dataclass
class Cases:
    """Those that can be measured, by what they are of and on how many cores; and why others cannot,
    a sentence each."""

    found: dict[tuple[Kernel | Level | None, str, int], Case] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, of: Kernel | Level | None, name: str, cores: int, turn: Turn, trial: int) -> None:
        case = Case(turn)
        try:
            case.calibrate(trial)
        except Refused as error:
            what = (
                of.instructions if isinstance(of, Kernel) else f"{of.name}, {name}" if of else name
            )
            if (sentence := f"{what}: {error}") not in self.notes:
                self.notes.append(sentence)
        else:
            self.found[of, name, cores] = case


def measure(machine: Machine, seconds: float, clock: Callable[[], float] = time.monotonic) -> Roofs:
    """Measure the roofs of the cores that this process can use, in about so many seconds.

    Raises UsageError on a CPU without kernels for it and if no thread can be pinned, and
    DltuneError when the kernels cannot be built.
    """
    if sentence := unknown():
        raise UsageError(sentence, remedy=None)
    cpus = [core.cpus[0] for core in machine.cores]
    cases = Cases()
    cases.add(None, "cycles", 1, lambda n: peak("cycles", cpus[:1], n), _TRIAL)
    if not cases.found:
        raise UsageError(
            f"the machine's peak performance cannot be measured: {'; '.join(cases.notes)}",
            remedy=None,
        )
    for kernel in kernels.usable(cpuinfo.flags()):
        for count in sorted({1, len(cpus)}):
            turn = functools.partial(peak, kernel.name, cpus[:count])
            cases.add(kernel, kernel.name, count, turn, _TRIAL)
    there = _levels(machine, cases.notes)
    with contextlib.ExitStack() as stack:
        try:
            memory = stack.enter_context(Memory(cpus, room(there))) if there else None
        except Refused as error:
            memory, there = None, []
            cases.notes.append(f"bandwidths: {error}")
        if memory:
            _streams(cases, memory, there)
        left = _rounds(list(cases.found.values()), seconds, clock)
    if machine.quota is not None and machine.quota < len(cpus):
        cases.notes.append(
            f"the CPU quota is {machine.quota:g} CPUs: all {len(cpus)} cores together reach their "
            "rates only during a part of each quota period"
        )
    return Roofs(
        schema=SCHEMA,
        created=files.now(),
        fingerprint=fingerprint(machine),
        cpu=machine.name,
        cores=len(cpus),
        frequency=max(cases.found[None, "cycles", 1].rates),
        peaks=tuple(
            Peak(of.dtype, of.instructions, of.width, count, *_figures(case))
            for (of, _, count), case in cases.found.items()
            if isinstance(of, Kernel)
        ),
        bandwidths=tuple(
            Bandwidth(
                of.name,
                "read" if way == "read" else "triad",
                of.one if count == 1 else sum(of.each),
                count,
                *_figures(case),
            )
            for (of, way, count), case in cases.found.items()
            if isinstance(of, Level)
        ),
        caches=tuple(Cache(level.name, level.bytes) for level in there if level.bytes is not None),
        unsettled=left,
        notes=tuple(cases.notes),
    )


def _levels(machine: Machine, notes: list[str]) -> list[Level]:
    """Those that there is memory enough for; a note where that leaves one out."""
    there = levels(machine)
    needed = sum(room(there))
    if machine.memory is None or needed <= MOST_MEMORY * machine.memory:
        return there
    notes.append(
        f"memory bandwidth was not measured: it needs {needed / 2**20:.0f} MiB, more than "
        f"{MOST_MEMORY:.0%} of the available memory"
    )
    return there[:-1]


def _streams(cases: Cases, memory: Memory, there: list[Level]) -> None:
    widest = kernels.streams(cpuinfo.flags())
    for level in there:
        for way in _WAYS:
            for count in sorted({1, len(level.each)}):
                sizes = [level.one] if count == 1 else list(level.each)
                turn = functools.partial(memory.stream, f"{widest}_{way}", sizes)
                cases.add(level, way, count, turn, 1)


def _rounds(cases: list[Case], seconds: float, clock: Callable[[], float]) -> int:
    """Return the number of cases not settled when the time is over, or no more can."""
    began, rounds = clock(), 0
    left = cases
    while left and (rounds < LEAST_TURNS or clock() - began < seconds):
        for case in left:
            case.run()
        left = [case for case in left if not case.settled]
        rounds += 1
    return len(left)


def _figures(case: Case) -> tuple[float, float, int]:
    return max(case.rates), statistics.median(case.rates), len(case.rates)
