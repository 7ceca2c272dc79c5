"""Machines: their cores, caches and memory, and their peak performance (*roofs*)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import (
    FILLED,
    LABEL,
    POSITIVE,
    Bound,
    above,
    at_least,
    at_most,
    each,
    repeated,
)

SCHEMA = "dltune.machine/1"


class Core(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A physical core.

    `cpus`: the operating system's numbers of the core's hardware threads; allowed CPUs only.
    `tile`: number of the core's tile. List the cores of a tile one after the other.
    `socket`, `numa`: the operating system's numbers of socket and memory node.
    """

    cpus: Annotated[tuple[Annotated[int, at_least(0)], ...], FILLED]
    tile: Annotated[int, at_least(0)]
    socket: Annotated[int, at_least(0)]
    numa: Annotated[int, at_least(0)]


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slower memory in addition to the main memory.

    `name`: name for people.
    `bytes`: size.
    `bandwidth`: bytes per second between this memory and the main memory, in each direction.
    `latency`: additional seconds per copy.
    """

    name: Annotated[str, LABEL]
    bytes: Annotated[int, above(0)]
    bandwidth: Annotated[float, above(0)]
    latency: Annotated[float, at_least(0)] = 0.0


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cores that a job can use and the caches and memory that they share.

    A profile contains the document of the machine that it was measured on. `dltune plan --machine
    FILE` plans for another machine. A *core* is a physical core; all documents refer to it by its
    position in `cores`, counted from 0. A *tile* is a group of cores that share a cache which not
    all cores of the machine share.

    `name`: CPU model, for people.
    `cores`: physical cores.
    `quota`: CPU time limit of the control group, in CPUs; null without a limit.
    `shared_cache`: size in bytes of the cache that a tile shares.
    `memory`: main memory that a job can use, in bytes.
    `smt_throughput`: throughput of a core that runs two hardware threads, relative to one thread;
      null if unknown or without SMT.
    `peak_flops`, `peak_bandwidth`: peak performance of all cores together, in operations per second
      and in bytes of main memory per second. If null, `dltune show` uses the highest rate of the
      ops.
    `tiers`: slower memory, the fastest first.
    """

    schema: str
    name: str
    cores: Annotated[tuple[Core, ...], FILLED]
    quota: Annotated[float | None, above(0)] = None
    shared_cache: Annotated[int | None, above(0)] = None
    memory: Annotated[int | None, above(0)] = None
    smt_throughput: float | None = None
    peak_flops: Annotated[float | None, above(0)] = None
    peak_bandwidth: Annotated[float | None, above(0)] = None
    tiers: tuple[Tier, ...] = ()

    @property
    def tiles(self) -> tuple[tuple[int, ...], ...]:
        """Core indices of each tile, in tile order."""
        members: dict[int, list[int]] = {}
        for index, core in enumerate(self.cores):
            members.setdefault(core.tile, []).append(index)
        return tuple(tuple(members[tile]) for tile in sorted(members))

    @property
    def sockets(self) -> int:
        return len({core.socket for core in self.cores})

    def of_cores(self, cores: Iterable[int]) -> Machine:
        """With these of its cores alone, by their indices."""
        return msgspec.structs.replace(self, cores=tuple(self.cores[core] for core in cores))

    @property
    def fingerprint(self) -> str:
        """Short hash of what a plan depends on: name, topology and quota; not the memory size."""
        facts = (self.name, [(c.cpus, c.tile, c.socket, c.numa) for c in self.cores], self.quota)
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]

    def relation_faults(self) -> Iterator[str]:
        owner: dict[int, int] = {}
        socket_of: dict[int, tuple[int, int]] = {}
        for index, core in enumerate(self.cores):
            for cpu in core.cpus:
                if cpu in owner:
                    yield (
                        f"cores[{index}].cpus must not repeat a CPU, got {cpu}, which is also in "
                        f"cores[{owner[cpu]}]"
                    )
                owner.setdefault(cpu, index)
            first, socket = socket_of.setdefault(core.tile, (index, core.socket))
            if core.socket != socket:
                yield (
                    f"cores[{index}].tile must be within one socket, got {core.tile} on sockets "
                    f"{socket} (cores[{first}]) and {core.socket}"
                )
        threads = max((len(core.cpus) for core in self.cores), default=1)
        words = f"above 0 and at most {threads} (the hardware threads of a core)"
        throughput = Bound(words, lambda value: 0 < value <= threads)
        yield from throughput.of("", self, "smt_throughput")


load = documents.reader(Machine, SCHEMA)


ROOFS_SCHEMA = "dltune.roofs/1"

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
    width: Annotated[int, at_least(1)]
    cores: Annotated[int, at_least(1)]
    rate: Annotated[float, POSITIVE]
    median: Annotated[float, POSITIVE]
    turns: Annotated[int, at_least(1)]


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
    bytes: Annotated[int, at_least(1)]
    cores: Annotated[int, at_least(1)]
    rate: Annotated[float, POSITIVE]
    median: Annotated[float, POSITIVE]
    turns: Annotated[int, at_least(1)]


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level of the caches.

    `level`: name of the level.
    `bytes`: size available to all cores together.
    """

    level: Annotated[str, LABEL]
    bytes: Annotated[int, at_least(1)]


class Roofs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The peak performance of a machine, in operations and in bytes per second.

    `dltune doctor --roofs --json` prints it, the cache folder keeps it, and profiles contain it.
    Each rate is the highest of several measurements, because other work on the machine can only
    lower a rate. The median shows how much other work there was.

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
    cores: Annotated[int, at_least(1)]
    frequency: Annotated[float, POSITIVE]
    peaks: tuple[Peak, ...]
    bandwidths: tuple[Bandwidth, ...]
    caches: tuple[Cache, ...]
    unsettled: Annotated[int, at_least(0)] = 0
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

    def relation_faults(self) -> Iterator[str]:
        rated: list[tuple[str, Peak | Bandwidth]] = [*each("peaks", self.peaks)]
        rated += each("bandwidths", self.bandwidths)
        for here, one in rated:
            yield from at_most(self.cores, "the number of cores").of(here, one, "cores")
            yield from at_most(one.rate, "the rate").of(here, one, "median")
        cases = (f"{p.dtype} {p.instructions} on {p.cores} cores" for p in self.peaks)
        yield from repeated("peaks", "case", cases)
        streams = (f"{b.level} {b.way} on {b.cores} cores" for b in self.bandwidths)
        yield from repeated("bandwidths", "case", streams)
        yield from repeated("caches", "level", (cache.level for cache in self.caches))


load_roofs = documents.reader(Roofs, ROOFS_SCHEMA)
