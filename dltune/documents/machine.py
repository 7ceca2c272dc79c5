"""The machine document: the cores a job may use and what they share.

A *core* is a physical core and is known by its index in `Machine.cores` everywhere in dltune; the
operating system's CPU numbers (one per hardware thread) stand in `Core.cpus`. A *tile* is a group
of cores that share a cache that not all cores of the machine share; where all cores share one last
level cache and nothing smaller, the whole machine is one tile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from dltune.documents import files
from dltune.documents.faults import Bound, above, at_least, each, empty

SCHEMA = "dltune.machine/1"


class Core(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One physical core.

    `cpus`: its hardware threads as the system numbers them, allowed ones only.
    """

    cpus: tuple[int, ...]
    tile: int
    socket: int
    numa: int


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory beside that which ops compute in.

    `bytes` that it holds. `bandwidth` between the two in bytes/s, each way on its own; `latency`:
    seconds that each copy takes besides.
    """

    name: str
    bytes: int
    bandwidth: float
    latency: float = 0.0


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cores a job may use.

    `quota` is the cgroup's CPU time limit in CPUs (None: no limit). `shared_cache` is the size of
    the cache that a tile shares, `memory` the main memory a job may use, both in bytes.
    `smt_throughput` is the throughput of a core running two hardware threads, relative to one
    (None: not known or no SMT). `peak_flops` (flop/s) and `peak_bandwidth` (bytes/s of main memory)
    are what all cores reach together at most; None: not known, as dltune does not measure them.
    `tiers`: memory beside `memory`, the fastest first.
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
                    f"{here}.cpus must name no CPU again, got {cpu}, which cores[{owner[cpu]}] has"
                )
            owner.setdefault(cpu, index)
        first, socket = socket_of.setdefault(core.tile, (index, core.socket))
        if core.socket != socket:
            faults.append(
                f"{here}.tile must be of one socket, got {core.tile} on sockets {socket} "
                f"(cores[{first}]) and {core.socket}"
            )
    sizes = ("quota", "shared_cache", "memory", "peak_flops", "peak_bandwidth")
    faults += above(0).of("", machine, *sizes)
    threads = max((len(core.cpus) for core in machine.cores), default=1)
    words = f"above 0 and at most {threads}, the hardware threads of a core"
    faults += Bound(words, lambda value: 0 < value <= threads).of("", machine, "smt_throughput")
    for here, tier in each("tiers", machine.tiers, "name"):
        faults += above(0).of(here, tier, "bytes", "bandwidth")
        faults += at_least(0).of(here, tier, "latency")
    return faults


load = files.reader(Machine, SCHEMA, check)
