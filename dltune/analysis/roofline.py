"""Figures derived from a profile: rates of its ops, the machine's roofline, positions under it.

`rates` computes the rates of an op at one thread count and placement, `roofline` the limits of all
ops, and `analyse` all figures of a profile, op by op and case by case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dltune.analysis.flops import dtype, filters, moved, operations
from dltune.schemas.machine import MEMORY, DType, Machine, Roofs
from dltune.schemas.profile import Op, OpTime, Profile

# Rates of an op at one thread count and placement, from its counters, its shapes and its time

# bytes that a miss of the last level cache brings: the line of x86-64 and of most 64-bit Arm cores
CACHE_LINE = 64

# pairs of events (misses, accesses) of the last level cache, the first that was counted is taken
LAST_LEVEL = (
    (("LLC-load-misses", "LLC-store-misses"), ("LLC-loads", "LLC-stores")),
    (("LLC-load-misses",), ("LLC-loads",)),
    (("cache-misses",), ("cache-references",)),
    (("LLC-misses",), ("LLC-accesses",)),
)

FAULTS = (("page-faults",), ("minor-faults", "major-faults"), ("minor-faults",))


@dataclass(frozen=True)
class Rates:
    """Each is None if its inputs were not counted, or is 0 below the line.

    `ipc`: instructions per cycle. `miss_rate`: of accesses to the last level cache. `memory_rate`:
    bytes/s that its misses bring. `faults` and `switches`: of one run, over all its threads.
    `cpu_share`: time that its threads had a CPU, over time * threads. `flop_rate`: flop/s.
    `intensity`: flop per byte, of memory where misses were counted, else of bytes that must move.
    `byte_rate`: bytes/s that must move, from wherever.
    """

    ipc: float | None = None
    miss_rate: float | None = None
    memory_rate: float | None = None
    faults: float | None = None
    switches: float | None = None
    cpu_share: float | None = None
    flop_rate: float | None = None
    intensity: float | None = None
    byte_rate: float | None = None


def rates(time: OpTime, operations: int | None = None, moved: int | None = None) -> Rates:
    """`operations` and `moved`: of one run, as `flops.py` has them.

    Counts are means of a run and the time is the median: they are of the same runs, but not of the
    same one.
    """
    # without what perf appends to say where it counted: instructions:u
    counted = {count.event.partition(":")[0]: count.value for count in time.counts}
    misses, accesses = _last_level(counted)
    faults = (found for events in FAULTS if (found := _sum(counted, events)) is not None)
    clock = counted.get("task-clock", counted.get("cpu-clock"))
    memory = None if misses is None else misses * CACHE_LINE
    return Rates(
        ipc=_over(counted.get("instructions"), counted.get("cycles", counted.get("cpu-cycles"))),
        miss_rate=_over(misses, accesses),
        memory_rate=_over(memory, time.median),
        faults=next(faults, None),
        switches=counted.get("context-switches"),
        cpu_share=_over(clock, time.median * time.threads),
        flop_rate=_over(operations, time.median),
        intensity=_over(operations, moved if memory is None else memory),
        byte_rate=_over(moved, time.median),
    )


def _last_level(counted: Mapping[str, float]) -> tuple[float | None, float | None]:
    for misses, accesses in LAST_LEVEL:
        if (missed := _sum(counted, misses)) is not None:
            return missed, _sum(counted, accesses)
    return None, None


def _sum(counted: Mapping[str, float], events: tuple[str, ...]) -> float | None:
    if all(event in counted for event in events):
        return sum(counted[event] for event in events)
    return None


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


# Ceilings, and the position of an op under them

# An op sets a peak only if it takes so long, in seconds: of a shorter one, the call and the reading
# of the clock are a part, and a cache can still hold all of it.
LEAST_SECONDS = 20e-6
# An op uses memory, and not caches alone, if it moves so many times what all caches hold: at most
# a quarter of it can have been there.
BEYOND_CACHES = 4
# of keys' types, the type whose peak bounds them: numbers of 16 bits that a CPU does not compute
# with are made 32 bits long for it
PEAKS: Mapping[str, tuple[DType, ...]] = {
    "double": ("float64",),
    "float": ("float32",),
    "half": ("float32",),
    "bfloat16": ("bfloat16", "float32"),
}
_HERE = "measured"


@dataclass(frozen=True)
class Ceiling:
    """`rate` in flop/s or bytes/s. `source`: where it is from, in words for a sentence. `key`: of
    the op that reached it; None when it was not measured."""

    rate: float
    source: str
    key: str | None = None

    @property
    def measured(self) -> bool:
        return self.key is not None


@dataclass(frozen=True)
class Position:
    """Position of an op: the lower ceiling at its intensity, and the share of it."""

    under: Literal["compute", "memory", "cache"]
    attainable: float
    share: float


@dataclass(frozen=True)
class Measured:
    """An op at one case, with the known figures of that case. `dtype`: of the numbers that it
    computes with, as keys call it; None where it has none, or they are not known."""

    op: Op
    time: OpTime
    moved: int | None
    rates: Rates
    dtype: str | None = None


@dataclass(frozen=True)
class Level:
    """Level of the caches: `bytes` that all cores find in it together, and their bandwidth."""

    name: str
    bytes: int
    ceiling: Ceiling


@dataclass(frozen=True)
class Roofline:
    """Limit of an op's speed, from the machine's peaks and the op's intensity.

    After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
    multicore architectures" (CACM 52(4), 2009): attainable flop/s = min(peak flop/s, intensity *
    bandwidth). A peak is the figure of the machine's document, else the measurement of the machine
    itself (`Profile.roofs`), else the best rate that an op reached in the profile: that one is a
    lower bound of the real one, and the op that set it is at 100 % of it by definition. No peak is
    lower than the rate of an op.

    `compute` bounds ops whose type is not in `dtypes`. `memory` bounds ops that move more
    than all caches (`caches` bytes) hold, `cache` the rest, except data that a level of `levels`
    holds, the nearest first: that comes out of it at most as fast as out of that level.
    """

    compute: Ceiling | None
    memory: Ceiling | None
    cache: Ceiling | None
    caches: int | None
    dtypes: Mapping[str, Ceiling] = field(default_factory=dict)
    levels: tuple[Level, ...] = ()

    def computing(self, of: Measured) -> Ceiling | None:
        """Ceiling of the op's arithmetic."""
        return self.dtypes.get(of.dtype or "", self.compute)

    def bandwidth(self, of: Measured) -> tuple[float, Ceiling, Literal["memory", "cache"]] | None:
        """Bytes/s that the op moves, and the ceiling that they are under."""
        if of.rates.memory_rate is not None:
            return (of.rates.memory_rate, self.memory, "memory") if self.memory else None
        if of.rates.byte_rate is None:
            return None
        if _beyond(of, self.caches) and self.memory:
            return of.rates.byte_rate, self.memory, "memory"
        holding = (level for level in self.levels if level.bytes >= (of.moved or 0))
        cache = next((level.ceiling for level in holding), self.cache)
        return (of.rates.byte_rate, cache, "cache") if cache else None

    def position(self, of: Measured) -> Position | None:
        """None where the op's operations or bytes, or a ceiling, are not known, or are 0."""
        found, computing = self.bandwidth(of), self.computing(of)
        if not found or computing is None or not of.rates.flop_rate or not of.rates.intensity:
            return None
        _, ceiling, where = found
        slope = of.rates.intensity * ceiling.rate
        attainable = min(slope, computing.rate)
        under = where if slope < computing.rate else "compute"
        return Position(under, attainable, of.rates.flop_rate / attainable)


def roofline(
    machine: Machine, measured: Iterable[Measured], roofs: Roofs | None = None
) -> Roofline:
    """Return the roofline of a machine. `roofs`: those measured of the machine."""
    cases = [case for case in measured if case.time.median >= LEAST_SECONDS]
    caches = None
    if roofs and roofs.caches:
        caches = roofs.caches[-1].bytes
    elif machine.shared_cache is not None:
        caches = machine.shared_cache * len(machine.tiles)
    counted = [case for case in cases if case.rates.memory_rate is not None]
    if counted:
        memory = _best((case.rates.memory_rate or 0.0, case) for case in counted)
    else:
        memory = _best((c.rates.byte_rate or 0.0, c) for c in cases if _beyond(c, caches))
    memory = _higher(memory, _out_of(roofs, MEMORY))
    document = "given in the machine file"
    if machine.peak_bandwidth is not None:
        memory = Ceiling(machine.peak_bandwidth, document)
    reached = {case.dtype for case in cases if case.dtype in PEAKS}
    dtypes = {}
    for kind in sorted(filter(None, reached)):
        if peak := _peak(roofs, kind):
            of = (c for c in cases if c.dtype == kind)
            dtypes[kind] = _higher(peak, _best((c.rates.flop_rate or 0.0, c) for c in of)) or peak
    compute = dtypes.get("float") or _peak(roofs, "float")
    if compute is None:
        compute = _best((case.rates.flop_rate or 0.0, case) for case in cases)
    if machine.peak_flops is not None:
        compute, dtypes = Ceiling(machine.peak_flops, document), {}
    cache = _best((case.rates.byte_rate or 0.0, case) for case in cases)
    levels: tuple[Level, ...] = ()
    if roofs and roofs.caches:
        levels = tuple(
            Level(found.level, found.bytes, ceiling)
            for found in roofs.caches
            if (ceiling := _out_of(roofs, found.level))
        )
        cache = levels[-1].ceiling if levels else cache
    return Roofline(compute, memory, cache, caches, dtypes, levels)


def _peak(roofs: Roofs | None, dtype: str) -> Ceiling | None:
    for known in PEAKS[dtype] if roofs else ():
        if roofs and (peak := roofs.peak(known)):
            return Ceiling(peak.rate, f"{_HERE}, {known} with {peak.instructions}")
    return None


def _out_of(roofs: Roofs | None, level: str) -> Ceiling | None:
    found = roofs.bandwidth(level) if roofs else None
    return Ceiling(found.rate, f"{_HERE}, from {level}") if found else None


def _higher(one: Ceiling | None, other: Ceiling | None) -> Ceiling | None:
    return max(filter(None, (one, other)), key=lambda ceiling: ceiling.rate, default=None)


def _beyond(of: Measured, caches: int | None) -> bool:
    return caches is not None and of.moved is not None and of.moved >= BEYOND_CACHES * caches


def _best(rated: Iterable[tuple[float, Measured]]) -> Ceiling | None:
    rate, case = max(rated, key=lambda pair: pair[0], default=(0.0, None))
    if case is None or rate <= 0:
        return None
    threads = f"{case.time.threads} thread" + ("s" if case.time.threads > 1 else "")
    return Ceiling(rate, f"{case.op.type} on {threads}", case.op.key)


# All derived figures of a profile


@dataclass(frozen=True)
class Figures:
    """An op's work, in floating-point operations and bytes that must move, and its rate.

    `cases` as `Op.times`; `best` is the fastest of them, None for an op without times. `serial` is
    all its time in a round of the steps on one thread, in seconds; `share` its part of all ops'.
    """

    op: Op
    operations: int | None
    moved: int | None
    cases: tuple[Measured, ...]
    best: Measured | None
    position: Position | None
    serial: float
    share: float

    @property
    def one(self) -> float | None:
        """Seconds of a run on one thread; None when it was not measured there."""
        return self.on(1)

    def on(self, threads: int) -> float | None:
        """Seconds of a run on so many threads, where they are best placed; None when it was not
        measured there."""
        return _on(self.op, threads)


@dataclass(frozen=True)
class Analysis:
    """`ops`: in the order of their time on one thread, the longest first."""

    profile: Profile
    roofline: Roofline
    ops: tuple[Figures, ...]

    def top(self, count: int) -> list[Figures]:
        """The first of the ops that have times."""
        return [figures for figures in self.ops if figures.best][:count]


def analyse(profile: Profile) -> Analysis:
    """Derive all figures of a profile, op by op and case by case."""
    known = filters(profile.ops)
    work = [(op, operations(op, known), moved(op)) for op in profile.ops]
    cases = [
        tuple(
            Measured(op, time, bytes_, rates(time, count, bytes_), dtype(op)) for time in op.times
        )
        for op, count, bytes_ in work
    ]
    every = (case for found in cases for case in found)
    roof = roofline(profile.machine, every, profile.roofs)
    serial = [(_on(op, 1) or 0.0) * op.count for op in profile.ops]
    whole = sum(serial) or 1.0
    found = []
    for (op, count, bytes_), of, seconds in zip(work, cases, serial, strict=True):
        best = min(of, key=lambda case: case.time.median, default=None)
        position = roof.position(best) if best else None
        found.append(Figures(op, count, bytes_, of, best, position, seconds, seconds / whole))
    found.sort(key=lambda figures: figures.serial, reverse=True)
    return Analysis(profile, roof, tuple(found))


def _on(op: Op, threads: int) -> float | None:
    return min((time.median for time in op.times if time.threads == threads), default=None)
