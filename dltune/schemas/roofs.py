"""The roofs document: the peak performance of a machine, in operations and in bytes per second.

`dltune doctor --roofs --json` prints it, the cache folder keeps it, and profiles contain it. Each
rate is the highest of several measurements, because other work on the machine can only lower a
rate. The median shows how much other work there was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from dltune.base import files
from dltune.base.faults import (
    POSITIVE,
    at_least,
    at_most,
    each,
    repeated,
)

SCHEMA = "dltune.roofs/1"

DType = Literal["float64", "float32", "bfloat16", "int8"]
Way = Literal["read", "triad"]

# what a level is called that is no cache
MEMORY = "memory"


class Peak(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peak rate of arithmetic. A multiplication and an addition count as two operations.

    `dtype`: element type.
    `instructions`: instruction set, such as `AVX-512`.
    `width`: operations per instruction.
    `cores`: number of cores that ran at the same time.
    `rate`, `median`: highest and median rate, in operations per second.
    `turns`: number of measurements.
    """

    dtype: DType
    instructions: str
    width: int
    cores: int
    rate: float
    median: float
    turns: int


class Bandwidth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peak rate of memory accesses, with each core on its own part of the data.

    `level`: `L1`, `L2`, `L3` or `memory`.
    `way`: `read` only reads; `triad` computes a = b + s * c and counts bytes read and written, as
      STREAM does.
    `bytes`: size of the data of all cores.
    `cores`: number of cores that ran at the same time.
    `rate`, `median`: highest and median rate, in bytes per second.
    `turns`: number of measurements.
    """

    level: str
    way: Way
    bytes: int
    cores: int
    rate: float
    median: float
    turns: int


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level of the caches.

    `level`: name of the level.
    `bytes`: size available to all cores together.
    """

    level: str
    bytes: int


class Roofs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peak performance of one machine.

    `fingerprint`: digest of the CPU (model, microcode, flags), the process' cores and quota, the
      caches and the measuring kernels. The values are only valid for this fingerprint.
    `cpu`: CPU model.
    `cores`: number of cores.
    `frequency`: frequency of one busy core, in Hz.
    `peaks`: arithmetic rates.
    `bandwidths`: memory rates.
    `caches`: cache levels, the nearest first.
    `unsettled`: number of rates that only one measurement reached. The true peak can be higher.
    `notes`: rates that could not be measured, with the reason.
    """

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
        faults += at_most(roofs.cores, "the number of cores").of(here, one, "cores")
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
