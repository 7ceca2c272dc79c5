"""Cores of a machine: their topology, the placement of threads on them, and built-in machines.

`local` reads the cores that this process can use, and the caches they share, from sysfs.
`builtin_machine` returns a machine to plan for that is not at hand, by its name or from a file.

A tile is made of the cores behind one cache of the largest level that more than one core shares
and that does not join all the cores allowed: the L2 of a Knights Landing pair, the L3 of an EPYC
core complex, the L3 of each of two Xeon sockets. Without such a level the tile is the socket.

A placement packs n threads into tiles, or gives one thread to one tile after the other (section
III-B). On the paper's machine, with two cores to a tile, "shared" fills whole tiles and so exists
for even counts only, and "spread" puts at most one thread on a tile: 34 + 34 cases on 68 cores.
Where tiles have other sizes, "shared" packs one tile after the other and "spread" deals threads out
to all tiles in turn.
"""

from __future__ import annotations

import difflib
import itertools
import platform
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from dltune.base.errors import UsageError
from dltune.schemas import machine as document
from dltune.schemas.machine import SCHEMA, Core, Machine, Tier
from dltune.schemas.profile import Placement
from dltune.system import kernel_files
from dltune.system.kernel_files import text

_Cpus: TypeAlias = frozenset[int]

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


class Survey(msgspec.Struct, frozen=True):
    """The machine, and where its facts come from.

    `mask`: the online CPUs of the affinity mask; `cpuset`: those of the control groups (None: no
    cpuset seen). `host_cores`: the physical cores that the host runs, each as its CPUs. `gaps`:
    for "cores", "sockets", "numa" and "tiles" the missing information and the assumption made
    instead, if the system does not report it.
    """

    machine: Machine
    mask: _Cpus
    cpuset: _Cpus | None
    host_cores: frozenset[_Cpus]
    gaps: Mapping[str, str]


class Cache(msgspec.Struct, frozen=True):
    """A data cache, one piece of it: behind `cpus`. `size` in bytes."""

    level: int
    cpus: _Cpus
    size: int | None


def local(root: Path = Path("/")) -> Machine:
    """Return the cores this process can use: affinity mask within the cgroup cpuset, and the quota.

    `root`: where `proc` and `sys` are found. Cores are in the order socket, tile, CPU number, so
    consecutive indices share a tile.
    """
    return survey(root).machine


def survey(root: Path = Path("/")) -> Survey:
    """Return the machine like `local`, with the sources and gaps that `dltune doctor` reports."""
    gaps: dict[str, str] = {}
    limits = kernel_files.limits(root)
    online = _online(root)
    mask = _mask(root) or online
    # the kernel enforces the mask; a cpuset that contradicts it is not this process's
    allowed = (online & mask & (limits.cpus or mask)) or (online & mask) or online

    siblings = {cpu: _siblings(root, cpu) for cpu in online}
    if not all(siblings.values()):
        gaps["cores"] = (
            "the system does not report which CPUs share a core: dltune counts each as a core"
        )
    host_cores = frozenset(found or frozenset({cpu}) for cpu, found in siblings.items())
    sockets = _sockets(root, host_cores, gaps)
    nodes = _numa_nodes(root)
    if not nodes:
        gaps["numa"] = "the system reports no NUMA nodes: dltune assumes one"
    groups = [group for core in host_cores if (group := core & allowed)]
    socket_of = {group: sockets[min(group)] for group in groups}
    caches = {group: caches_of(root, min(group)) for group in groups}
    if not all(caches.values()):
        gaps["tiles"] = (
            "the system does not report which cores share a cache: dltune treats a socket as a tile"
        )
    level = _tile_level(caches, host_cores)
    # cores with the same key share a tile; the cache of a level missing for one core is its own
    tile_of = {
        group: (
            socket_of[group],
            min(_behind(caches[group], level, group)) if level else -1,
        )
        for group in groups
    }
    ordered = sorted(groups, key=lambda group: (tile_of[group], min(group)))
    numbers = {key: number for number, key in enumerate(sorted(set(tile_of.values())))}
    machine = Machine(
        schema=SCHEMA,
        name=kernel_files.cpuinfo_value(root).get("model name") or platform.machine(),
        cores=tuple(
            Core(
                cpus=tuple(sorted(group)),
                tile=numbers[tile_of[group]],
                socket=socket_of[group],
                numa=nodes.get(min(group), 0),
            )
            for group in ordered
        ),
        quota=limits.quota,
        shared_cache=_shared_cache(tile_of, caches, level),
        memory=_memory(root, limits.memory),
    )
    return Survey(machine, mask & online, limits.cpus, host_cores, gaps)


def _tile_level(caches: Mapping[_Cpus, list[Cache]], host_cores: Iterable[_Cpus]) -> int | None:
    """The cache level that makes the tiles; None when a tile is a socket.

    Whether a level is private is a matter of the host's cores: one core allowed in each of two
    core complexes makes two tiles.
    """
    host_cores = list(host_cores)
    levels = {cache.level for found in caches.values() for cache in found}
    for level in sorted(levels, reverse=True):
        behind = {_behind(found, level, group) for group, found in caches.items()}
        joining = any(sum(not c.isdisjoint(cpus) for c in host_cores) > 1 for cpus in behind)
        if joining and len(behind) > 1:
            return level
    return None


def _behind(found: list[Cache], level: int, core: _Cpus) -> _Cpus:
    """Return the CPUs behind a core's cache of a level; only the core's if it has none."""
    return next((cache.cpus for cache in found if cache.level == level), core)


def _shared_cache(
    tile_of: Mapping[_Cpus, Hashable], caches: Mapping[_Cpus, list[Cache]], level: int | None
) -> int | None:
    """Bytes of the cache of that level (else of the last) that serves a whole tile, the smallest
    where tiles differ; None when no cache does."""
    sizes = []
    for tile in set(tile_of.values()):
        cores = [core for core in tile_of if tile_of[core] == tile]
        found = caches[cores[0]]
        wanted = level or max((cache.level for cache in found), default=0)
        sizes += [
            cache.size
            for cache in found
            if cache.level == wanted and cache.size and frozenset().union(*cores) <= cache.cpus
        ]
    return min(sizes, default=None)


def _online(root: Path) -> _Cpus:
    folder = root / "sys/devices/system/cpu"
    return kernel_files.read_cpulist(folder / "online") or frozenset(
        int(number) for entry in folder.glob("cpu*") if (number := entry.name[3:]).isdecimal()
    )


def _mask(root: Path) -> _Cpus:
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text(root / "proc/self/status"), re.M)
    return kernel_files.parse_cpulist(match[1]) if match else frozenset()


def _siblings(root: Path, cpu: int) -> _Cpus:
    folder = _cpu(root, cpu) / "topology"
    # core_cpus_list is the newer name of thread_siblings_list
    return kernel_files.read_cpulist(folder / "core_cpus_list") or kernel_files.read_cpulist(
        folder / "thread_siblings_list"
    )


def _sockets(root: Path, cores: frozenset[_Cpus], gaps: dict[str, str]) -> dict[int, int]:
    """Return the socket of each CPU, the same number if the system does not report it."""
    packages = {}
    for core in cores:
        package = text(_cpu(root, min(core)) / "topology/physical_package_id")
        # some firmwares say -1 themselves
        packages[core] = int(package) if package.isdigit() else -1
    if -1 in packages.values():
        gaps["sockets"] = "the system reports no sockets: dltune assumes one"
    elif 1 < len(set(packages.values())) == len(cores):
        # no real machine has had one core per socket for long; hypervisors do this by default
        gaps["sockets"] = (
            "the system reports each core as a separate socket: dltune assumes one socket"
        )
    assumed = "sockets" in gaps
    return {cpu: 0 if assumed else packages[core] for core in cores for cpu in core}


def _numa_nodes(root: Path) -> dict[int, int]:
    return {
        cpu: int(folder.name.removeprefix("node"))
        for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*"))
        for cpu in kernel_files.read_cpulist(folder / "cpulist")
    }


def caches_of(root: Path, cpu: int) -> list[Cache]:
    """Data and unified caches of a CPU."""
    caches = []
    for folder in sorted((_cpu(root, cpu) / "cache").glob("index[0-9]*")):
        level, cpus = text(folder / "level"), kernel_files.read_cpulist(folder / "shared_cpu_list")
        if level.isdigit() and cpus and text(folder / "type") != "Instruction":
            size = re.fullmatch(r"(\d+)([KMG]?)", text(folder / "size"))
            caches.append(
                Cache(int(level), cpus, int(size[1]) * UNITS.get(size[2], 1) if size else None)
            )
    return caches


def _memory(root: Path, limit: int | None) -> int | None:
    total = re.findall(r"^MemTotal:\s*(\d+) kB", text(root / "proc/meminfo"), re.M)
    sizes = [int(kib) * 1024 for kib in total] + ([limit] if limit is not None else [])
    return min(sizes, default=None)


def _cpu(root: Path, cpu: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{cpu}"


# Placement of threads

# Table V: with this interval on the paper's 68 cores the prediction is right to 95 %
INTERVAL_FRACTION = 16


class _Tile(NamedTuple):
    """Core indices: all of the tile's, and those that are free."""

    cores: tuple[int, ...]
    free: list[int]


def placements(machine: Machine, threads: int) -> tuple[Placement, ...]:
    """The distinct ways to place that many threads on the idle machine, "spread" first.

    One thread has only "spread". On two-core tiles an odd count above the number of tiles has no
    case at all (empty), as in the paper. The count of all cores always has one.
    Raises UsageError when there are fewer cores than threads, or no thread.
    """
    _require(machine, threads, len(machine.cores))
    sizes = [len(tile) for tile in machine.tiles]
    if threads == 1 or max(sizes) == 1:
        return ("spread",)
    if set(sizes) == {2}:
        found: list[Placement] = ["spread"] if threads <= len(sizes) else []
        return (*found, "shared") if threads % 2 == 0 else tuple(found)

    def threads_on_tiles(placement: Placement) -> list[int]:
        cores = cores_for(machine, threads, placement)
        return sorted(Counter(machine.cores[core].tile for core in cores).values())

    alike = threads_on_tiles("spread") == threads_on_tiles("shared")
    return ("shared",) if alike else ("spread", "shared")


def cores_for(
    machine: Machine, threads: int, placement: Placement, among: Collection[int] | None = None
) -> tuple[int, ...]:
    """Core indices for that many threads, ascending; `among`: the cores that are free (all).

    "shared" takes the fewest tiles that hold the threads, and leaves large groups of free cores
    whole where a small one is enough. "spread" gives no tile a thread more than it must and
    prefers the tiles where the fewest cores are busy. When the free cores do not allow the
    placement in full, this is the nearest to it.
    Raises UsageError when fewer than `threads` cores are free.
    """
    free = set(range(len(machine.cores)) if among is None else among)
    tiles = [_Tile(cores, [core for core in cores if core in free]) for cores in machine.tiles]
    _require(machine, threads, sum(len(tile.free) for tile in tiles))
    chosen = _packed(machine, tiles, threads) if placement == "shared" else _dealt(tiles, threads)
    return tuple(sorted(chosen))


def ladder(machine: Machine, interval: int) -> tuple[int, ...]:
    """The thread counts of hill climbing (section III-C): 1, X, 2X, ... and the core count last.

    Counts without any placement (odd ones above the number of two-core tiles) are left out.
    Raises UsageError when the interval is below 1.
    """
    if interval < 1:
        raise UsageError(
            f"interval {interval}: must be at least 1 thread", remedy="use --interval 1 or more"
        )
    cores = len(machine.cores)
    counts = sorted({1, *range(interval, cores, interval), cores})
    return tuple(count for count in counts if placements(machine, count))


def default_interval(machine: Machine) -> int:
    """The interval X when none is given: 4 on the paper's 68 cores."""
    return max(1, len(machine.cores) // INTERVAL_FRACTION)


def _require(machine: Machine, threads: int, available: int) -> None:
    if threads < 1:
        raise UsageError(
            f"thread count {threads}: must be at least 1", remedy="use 1 thread or more"
        )
    if threads > available:
        which = "cores" if available == len(machine.cores) else "free cores"
        raise UsageError(
            f"thread count {threads} exceeds the {available} {which} of {machine.name}",
            remedy=f"use at most {available} threads",
        )


def _packed(machine: Machine, tiles: list[_Tile], threads: int) -> list[int]:
    """Whole tiles, the largest first; then the smallest that holds the rest."""
    left = list(tiles)
    chosen: list[int] = []
    sockets: set[int] = set()
    while (rest := threads - len(chosen)) > 0:
        fitting = [len(tile.free) for tile in left if len(tile.free) >= rest]
        wanted = min(fitting) if fitting else max(len(tile.free) for tile in left)
        alike = [tile for tile in left if len(tile.free) == wanted]
        # stay on the sockets already in use
        near = (tile for tile in alike if machine.cores[tile.cores[0]].socket in sockets)
        tile = next(near, alike[0])
        left.remove(tile)
        sockets.add(machine.cores[tile.cores[0]].socket)
        chosen += tile.free[:rest]
    return chosen


def _dealt(tiles: list[_Tile], threads: int) -> list[int]:
    """One core from each tile in turn, the tiles with the fewest busy cores first."""
    order = sorted(tiles, key=lambda tile: len(tile.cores) - len(tile.free))
    rounds = itertools.zip_longest(*(tile.free for tile in order))
    cores = (core for round_ in rounds for core in round_ if core is not None)
    return list(itertools.islice(cores, threads))


# Machines that are planned for without being at hand

BUILTIN_MACHINES = {
    # the paper's machine (sections II-C and IV-A): Intel Xeon Phi 7250, 34 tiles of two cores that
    # share 1 MB of L2, four hardware threads a core, 16 GB of MCDRAM in cache mode. In flat mode
    # the DDR4 is a tier beside it: 96 GB, as nodes of NERSC's Cori have, and half of the some 90
    # GB/s that STREAM comes to each way
    "knl-7250": Machine(
        schema=SCHEMA,
        name="Intel Xeon Phi 7250",
        cores=tuple(
            Core(cpus=tuple(range(core, 4 * 68, 68)), tile=core // 2, socket=0, numa=0)
            for core in range(68)
        ),
        shared_cache=2**20,
        memory=16 * 2**30,
        smt_throughput=1.03,  # Table III: 41.1 s one after the other, 39.9 s on hyper-threads
        tiers=(Tier("DDR4", 96 * 2**30, 45e9),),
    )
}


def builtin_machine(name_or_path: str) -> Machine:
    """A known machine, or the one in a machine file.

    Raises UsageError, with near matches, when it is neither.
    """
    if name_or_path in BUILTIN_MACHINES:
        return BUILTIN_MACHINES[name_or_path]
    path = Path(name_or_path)
    if path.exists() or path.parent != Path() or path.suffix in (".json", ".gz"):
        return document.load(path)
    near = difflib.get_close_matches(name_or_path.lower(), BUILTIN_MACHINES, n=3, cutoff=0.4)
    raise UsageError(
        f"unknown machine {name_or_path!r}: neither a built-in machine nor a file"
        + (f"; did you mean {' or '.join(near)}?" if near else ""),
        remedy=f"name a machine file, or one of: {', '.join(sorted(BUILTIN_MACHINES))}",
    )
