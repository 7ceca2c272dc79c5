"""The roofline: how fast an op can be at most, from the machine's peaks and the op's intensity.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures" (CACM 52(4), 2009): attainable flop/s = min(peak flop/s, intensity *
bandwidth). Nothing is assumed of a machine: a peak is what its document says, else the best rate
that an op reached in the profile. A measured peak is a lower bound of the real one; the op that set
it stands at 100 % of it by definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dltune.analysis.rates import Rates
from dltune.documents.machine import Machine
from dltune.documents.profile import Op, OpTime

# An op sets a peak only if it takes so long, in seconds: of a shorter one, the call and the reading
# of the clock are a part, and a cache may still hold all of it.
LEAST_SECONDS = 20e-6
# An op uses memory, and not caches alone, if it moves so many times what all caches hold: at most
# a quarter of it can have been there.
BEYOND_CACHES = 4


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
    """Where an op stands: which ceiling is the lower one at its intensity, and the share of it."""

    under: Literal["compute", "memory", "cache"]
    attainable: float
    share: float


@dataclass(frozen=True)
class Measured:
    """An op at one case, with what is known of it there."""

    op: Op
    time: OpTime
    moved: int | None
    rates: Rates


@dataclass(frozen=True)
class Roofline:
    """`memory` bounds what moves more than all caches (`caches` bytes) hold, `cache` the rest."""

    compute: Ceiling | None
    memory: Ceiling | None
    cache: Ceiling | None
    caches: int | None

    def bandwidth(self, of: Measured) -> tuple[float, Ceiling, Literal["memory", "cache"]] | None:
        """Bytes/s that the op moves, and the ceiling that they are under."""
        if of.rates.memory_rate is not None:
            return (of.rates.memory_rate, self.memory, "memory") if self.memory else None
        if of.rates.byte_rate is None:
            return None
        if _beyond(of, self.caches) and self.memory:
            return of.rates.byte_rate, self.memory, "memory"
        return (of.rates.byte_rate, self.cache, "cache") if self.cache else None

    def position(self, of: Measured) -> Position | None:
        """None where the op's operations or bytes, or a ceiling, are not known, or are 0."""
        found = self.bandwidth(of)
        if not found or self.compute is None or not of.rates.flop_rate or not of.rates.intensity:
            return None
        _, ceiling, where = found
        slope = of.rates.intensity * ceiling.rate
        attainable = min(slope, self.compute.rate)
        under = where if slope < self.compute.rate else "compute"
        return Position(under, attainable, of.rates.flop_rate / attainable)


def roofline(machine: Machine, measured: Iterable[Measured]) -> Roofline:
    """The machine's own peaks where its document has them, else the best that was measured."""
    cases = [case for case in measured if case.time.median >= LEAST_SECONDS]
    caches = None
    if machine.shared_cache is not None:
        caches = machine.shared_cache * len(machine.tiles)
    counted = [case for case in cases if case.rates.memory_rate is not None]
    if counted:
        memory = _best((case.rates.memory_rate or 0.0, case) for case in counted)
    else:
        memory = _best((c.rates.byte_rate or 0.0, c) for c in cases if _beyond(c, caches))
    document = "the machine's document"
    if machine.peak_bandwidth is not None:
        memory = Ceiling(machine.peak_bandwidth, document)
    compute = _best((case.rates.flop_rate or 0.0, case) for case in cases)
    if machine.peak_flops is not None:
        compute = Ceiling(machine.peak_flops, document)
    cache = _best((case.rates.byte_rate or 0.0, case) for case in cases)
    return Roofline(compute, memory, cache, caches)


def _beyond(of: Measured, caches: int | None) -> bool:
    return caches is not None and of.moved is not None and of.moved >= BEYOND_CACHES * caches


def _best(rated: Iterable[tuple[float, Measured]]) -> Ceiling | None:
    rate, case = max(rated, key=lambda pair: pair[0], default=(0.0, None))
    if case is None or rate <= 0:
        return None
    threads = f"{case.time.threads} thread" + ("s" if case.time.threads > 1 else "")
    return Ceiling(rate, f"{case.op.type} on {threads}", case.op.key)
