"""Measure the roofs: every case in turn, again and again, the most of each.

Turns are short and those of a case are spread over all of the time, so that what else the machine
does, and what a hypervisor does beside it, can spoil many turns of each case and yet not all.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dltune.documents import files
from dltune.documents.machine import Machine
from dltune.documents.roofs import SCHEMA, Bandwidth, Cache, Peak, Roofs
from dltune.errors import UsageError
from dltune.machine import cpuinfo
from dltune.machine.roofs import kernels
from dltune.machine.roofs.fingerprint import fingerprint, unknown
from dltune.machine.roofs.kernels import Kernel
from dltune.machine.roofs.levels import Level, levels, room
from dltune.machine.roofs.roofs_binding import Memory, Refused, peak

# of a turn, about: long enough for threads that begin some microseconds apart, short enough to lie
# between two visits of other work
TURN = 0.5e-3
LEAST_TURNS, TRIALS = 10, 3
# a case is settled when its best turn is no accident: so many turns came so near to it
SETTLING, NEAR = 3, 0.02
_TRIAL = 1 << 12  # rounds of a kernel, to learn how long they take
# of the memory that the job may use; more is left to whoever has it
MOST_MEMORY = 0.25

_WAYS = ("read", "triad")


@dataclass
class Case:
    """`turn(n)` works n times and returns seconds and what was done in them. `times`: so that a
    turn takes about TURN. `rates`: of its turns so far, a second's work each."""

    turn: Callable[[int], tuple[float, int]]
    times: int = 1
    rates: list[float] = field(default_factory=list)

    def calibrate(self, trial: int) -> None:
        """Raises Refused. Of some trials the shortest: other work only adds to it."""
        seconds = min(self.turn(trial)[0] for _ in range(TRIALS))
        self.times = max(1, round(trial * TURN / seconds))

    def run(self) -> None:
        seconds, work = self.turn(self.times)
        self.rates.append(work / seconds)

    @property
    def settled(self) -> bool:
        best = sorted(self.rates)[-SETTLING:]
        return len(self.rates) >= LEAST_TURNS and best[0] >= best[-1] * (1 - NEAR)


def measure(machine: Machine, seconds: float, clock: Callable[[], float] = time.monotonic) -> Roofs:
    """The roofs of the cores that this process may use, in about so many seconds.

    Raises UsageError on a CPU that there are no kernels for, and DltuneError when the kernels
    cannot be built.
    """
    if sentence := unknown():
        raise UsageError(sentence, remedy="the best that ops reach stands for the roofs there")
    cpus = [core.cpus[0] for core in machine.cores]
    counts = sorted({1, len(cpus)})
    notes: list[str] = []
    cases: dict[tuple[Kernel | Level | None, str, int], Case] = {}

    def tried(key: tuple[Kernel | Level | None, str, int], case: Case, trial: int) -> None:
        try:
            case.calibrate(trial)
            cases[key] = case
        except Refused as error:
            what = key[0].instructions if isinstance(key[0], Kernel) else key[1]
            sentence = f"{what}: {error}"
            if sentence not in notes:
                notes.append(sentence)

    tried((None, "cycles", 1), Case(lambda n: peak("cycles", cpus[:1], n)), _TRIAL)
    flags = cpuinfo.flags()
    for kernel in kernels.usable(flags):
        for count in counts:
            case = Case(lambda n, k=kernel, c=count: peak(k.name, cpus[:c], n))  # type: ignore[misc]
            tried((kernel, kernel.name, count), case, _TRIAL)
    there = levels(machine)
    if machine.memory is not None and sum(room(there)) > MOST_MEMORY * machine.memory:
        notes.append(
            f"memory: to measure beyond the caches takes {sum(room(there)) / 2**20:.0f} MiB, more "
            f"than {MOST_MEMORY:.0%} of what there is"
        )
        there = there[:-1]
    if machine.quota is not None and machine.quota < len(cpus):
        notes.append(
            f"the quota is {machine.quota:g} CPUs: what all {len(cpus)} cores reach, they reach "
            "for a part of each period"
        )
    with Memory(cpus, room(there) if there else [1] * len(cpus)) as memory:
        for level in there:
            for way in _WAYS:
                name = f"{kernels.streams(flags)}_{way}"
                for count in counts:
                    sizes = [level.one] if count == 1 else list(level.each)
                    case = Case(
                        lambda n, m=memory, w=name, s=sizes: m.stream(w, s, n)  # type: ignore[misc]
                    )
                    tried((level, way, count), case, 1)
        left = _rounds(list(cases.values()), seconds, clock)
    return Roofs(
        schema=SCHEMA,
        created=files.now(),
        fingerprint=fingerprint(machine),
        cpu=machine.name,
        cores=len(cpus),
        frequency=max(cases[None, "cycles", 1].rates),
        peaks=tuple(
            Peak(key.dtype, key.instructions, key.width, count, *_figures(case))
            for (key, _, count), case in cases.items()
            if isinstance(key, Kernel)
        ),
        bandwidths=tuple(
            Bandwidth(
                key.name,
                "read" if way == "read" else "triad",
                key.one if count == 1 else sum(key.each),
                count,
                *_figures(case),
            )
            for (key, way, count), case in cases.items()
            if isinstance(key, Level)
        ),
        caches=tuple(Cache(level.name, level.bytes) for level in there if level.bytes is not None),
        unsettled=left,
        notes=tuple(notes),
    )


def _rounds(cases: list[Case], seconds: float, clock: Callable[[], float]) -> int:
    """How many cases are not settled when the time is over, or no more can."""
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
