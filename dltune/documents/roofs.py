"""The roofs document: what a machine's cores reach at most, in arithmetic and in moving bytes.

Rates are operations a second and bytes a second. Each is the most of several turns, because other
work on the machine and beside it only takes away; the median tells how much it took.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from dltune.documents import files
from dltune.documents.faults import POSITIVE, at_least, at_most, each, repeated

SCHEMA = "dltune.roofs/1"

DType = Literal["float64", "float32", "bfloat16", "int8"]
Way = Literal["read", "triad"]

# what a level is called that is no cache
MEMORY = "memory"


class Peak(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operations a second with these `instructions` on so many cores at once, a multiplication and
    an addition counted as two. `width`: operations of one instruction."""

    dtype: DType
    instructions: str
    width: int
    cores: int
    rate: float
    median: float
    turns: int


class Bandwidth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes a second out of a `level` ("L1", "L2", "L3", "memory") on so many cores at once, each
    on its own part of `bytes`. `triad`: a = b + s * c, of which what is read and what is written
    counts, as STREAM counts it; `read`: nothing is written."""

    level: str
    way: Way
    bytes: int
    cores: int
    rate: float
    median: float
    turns: int


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level of the caches: `bytes` that all of this machine's cores find in it together."""

    level: str
    bytes: int


class Roofs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`fingerprint`: of the machine, its limits and the kernels, for which this holds. `cpu`: its
    name; `cores`: how many "all" are. `frequency` of one core at work, in Hz. `caches`: the nearest
    first. `unsettled`: of so many rates no other turn came near the best one, as on a machine that
    is never quiet: the true ones may be higher. `notes`: what could not be measured, and why."""

    schema: str
    created: str
    fingerprint: str
    cpu: str
    cores: int
    frequency: float
    peaks: tuple[Peak, ...]
    bandwidths: tuple[Bandwidth, ...]
    caches: tuple[Cache, ...]
    unsettled: int = 0
    notes: tuple[str, ...] = ()

    def peak(
        self, dtype: DType, cores: int | None = None, among: Iterable[str] | None = None
    ) -> Peak | None:
        """The highest of a type, on so many cores (None: all), with the instructions `among` which
        one may choose (None: all that this CPU has)."""
        allowed = None if among is None else frozenset(among)
        found = (
            peak
            for peak in self.peaks
            if peak.dtype == dtype
            and peak.cores == (cores or self.cores)
            and (allowed is None or peak.instructions in allowed)
        )
        return max(found, key=lambda peak: peak.rate, default=None)

    def bandwidth(self, level: str, cores: int | None = None) -> Bandwidth | None:
        """The highest of a level, whichever way, on so many cores (None: all)."""
        found = (
            one
            for one in self.bandwidths
            if one.level == level and one.cores == (cores or self.cores)
        )
        return max(found, key=lambda one: one.rate, default=None)


_SIZE = {Peak: "width", Bandwidth: "bytes"}


def check(roofs: Roofs) -> list[str]:
    """All that cannot be true of roofs, one sentence each, the field's path first."""
    faults = at_least(1).of("", roofs, "cores") + at_least(0).of("", roofs, "unsettled")
    faults += POSITIVE.of("", roofs, "frequency")
    rated: list[tuple[str, Peak | Bandwidth]] = [*each("peaks", roofs.peaks)]
    rated += each("bandwidths", roofs.bandwidths)
    for here, one in rated:
        faults += at_least(1).of(here, one, "cores", "turns", _SIZE[type(one)])
        faults += at_most(roofs.cores, "the cores there are").of(here, one, "cores")
        faults += POSITIVE.of(here, one, "rate", "median")
        faults += at_most(one.rate, "the rate").of(here, one, "median")
    cases = (f"{p.dtype} {p.instructions} on {p.cores} cores" for p in roofs.peaks)
    faults += repeated("peaks", "case", cases)
    streams = (f"{b.level} {b.way} on {b.cores} cores" for b in roofs.bandwidths)
    faults += repeated("bandwidths", "case", streams)
    faults += repeated("caches", "level", (cache.level for cache in roofs.caches))
    for here, cache in each("caches", roofs.caches, "level"):
        faults += at_least(1).of(here, cache, "bytes")
    return faults


load = files.reader(Roofs, SCHEMA, check)
