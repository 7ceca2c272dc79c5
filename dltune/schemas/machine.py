"""The machine document: the cores that a job can use and the caches and memory that they share.

A profile contains the document of the machine that it was measured on. `dltune plan --machine FILE`
plans for another machine. A *core* is a physical core; all documents refer to it by its position in
`cores`, counted from 0. A *tile* is a group of cores that share a cache which not all cores of the
machine share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from dltune.base import files
from dltune.base.faults import (
    Bound,
    above,
    at_least,
    each,
    empty,
)

SCHEMA = "dltune.machine/1"


class Core(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A physical core.

    `cpus`: the operating system's numbers of the core's hardware threads; allowed CPUs only.
    `tile`: number of the core's tile. List the cores of a tile one after the other.
    `socket`, `numa`: the operating system's numbers of socket and memory node.
    """

    cpus: tuple[int, ...]
    tile: int
    socket: int
    numa: int


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slower memory in addition to the main memory.

    `name`: name for people.
    `bytes`: size.
    `bandwidth`: bytes per second between this memory and the main memory, in each direction.
    `latency`: additional seconds per copy.
    """

    name: str
    bytes: int
    bandwidth: float
    latency: float = 0.0


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine, or the part of it that the job can use.

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
    cores: tuple[Core, ...]
    quota: float | None = None
    shared_cache: int | None = None
    memory: int | None = None
    smt_throughput: float | None = None
    peak_flops: float | None = None
    peak_bandwidth: float | None = None
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


def check(machine: Machine) -> list[str]:
    """All that is impossible in this topology, one sentence each, the field's path first."""
    faults = [*empty("", machine, "cores")]
    owner: dict[int, int] = {}
    socket_of: dict[int, tuple[int, int]] = {}
    for index, (here, core) in enumerate(each("cores", machine.cores)):
        faults += at_least(0).of(here, core, "tile", "socket", "numa")
        faults += empty(here, core, "cpus")
        faults += at_least(0).faults(f"{here}.cpus", *core.cpus)
        for cpu in core.cpus:
            if cpu in owner:
                faults.append(
                    f"{here}.cpus must not repeat a CPU, got {cpu}, which is also in "
                    f"cores[{owner[cpu]}]"
                )
            owner.setdefault(cpu, index)
        first, socket = socket_of.setdefault(core.tile, (index, core.socket))
        if core.socket != socket:
            faults.append(
                f"{here}.tile must be within one socket, got {core.tile} on sockets {socket} "
                f"(cores[{first}]) and {core.socket}"
            )
    sizes = ("quota", "shared_cache", "memory", "peak_flops", "peak_bandwidth")
    faults += above(0).of("", machine, *sizes)
    threads = max((len(core.cpus) for core in machine.cores), default=1)
    words = f"above 0 and at most {threads} (the hardware threads of a core)"
    faults += Bound(words, lambda value: 0 < value <= threads).of("", machine, "smt_throughput")
    for here, tier in each("tiers", machine.tiers, "name"):
        faults += above(0).of(here, tier, "bytes", "bandwidth")
        faults += at_least(0).of(here, tier, "latency")
    return faults


load = files.reader(Machine, SCHEMA, check)
