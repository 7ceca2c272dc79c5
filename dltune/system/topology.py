"""The machine at hand: the cores this process can use and their shared parts, from sysfs.

A tile is made of the cores behind one cache of the largest level that more than one core shares
and that does not join all the cores allowed: the L2 of a Knights Landing pair, the L3 of an EPYC
core complex, the L3 of each of two Xeon sockets. Without such a level the tile is the socket.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.system import cgroups, cpuinfo, cpulist
from dltune.system.proc.entry import text

_Cpus: TypeAlias = frozenset[int]

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Survey:
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


@dataclass(frozen=True)
class Cache:
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
    limits = cgroups.limits(root)
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
        name=cpuinfo.first(root).get("model name") or platform.machine(),
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
    return cpulist.read(folder / "online") or frozenset(
        int(number) for entry in folder.glob("cpu*") if (number := entry.name[3:]).isdecimal()
    )


def _mask(root: Path) -> _Cpus:
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text(root / "proc/self/status"), re.M)
    return cpulist.parse(match[1]) if match else frozenset()


def _siblings(root: Path, cpu: int) -> _Cpus:
    folder = _cpu(root, cpu) / "topology"
    # core_cpus_list is the newer name of thread_siblings_list
    return cpulist.read(folder / "core_cpus_list") or cpulist.read(folder / "thread_siblings_list")


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
        for cpu in cpulist.read(folder / "cpulist")
    }


def caches_of(root: Path, cpu: int) -> list[Cache]:
    """Data and unified caches of a CPU."""
    caches = []
    for folder in sorted((_cpu(root, cpu) / "cache").glob("index[0-9]*")):
        level, cpus = text(folder / "level"), cpulist.read(folder / "shared_cpu_list")
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
