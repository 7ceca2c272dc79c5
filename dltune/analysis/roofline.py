"""The roofline: how fast an op can be at most, from the machine's peaks and the op's intensity.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures" (CACM 52(4), 2009): attainable flop/s = min(peak flop/s, intensity *
bandwidth). A peak is the figure of the machine's document, else the measurement of the machine
itself (`Profile.roofs`), else the best rate that an op reached in the profile: that one is a lower
bound of the real one, and the op that set it is at 100 % of it by definition. No peak is lower than
the rate of an op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dltune.analysis.rates import Rates
from dltune.schemas.machine import MEMORY, DType, Machine, Roofs
from dltune.schemas.profile import Op, OpTime

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
    """`compute` bounds ops whose type is not in `dtypes`. `memory` bounds ops that move more
    than all caches (`caches` bytes) hold, `cache` the rest, except data that a level of `levels`
    holds, the nearest first: that comes out of it at most as fast as out of that level."""

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
    """`roofs`: those measured of the machine."""
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
    for dtype in sorted(filter(None, reached)):
        if peak := _peak(roofs, dtype):
            of = (c for c in cases if c.dtype == dtype)
            dtypes[dtype] = _higher(peak, _best((c.rates.flop_rate or 0.0, c) for c in of)) or peak
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
