"""The cores a job may use here, and what they share."""

from __future__ import annotations

import math
from pathlib import Path

from dltune.system import cpulist
from dltune.system.checks import Check
from dltune.system.proc.entry import text
from dltune.system.topology import Survey

TELL_TOPOLOGY = "configure the hypervisor to pass the host's topology and caches to the guest"


def allowed(survey: Survey) -> Check:
    """How many cores, of how many, and by whose leave."""
    cores = survey.machine.cores
    cpus = cpulist.show(cpu for core in cores for cpu in core.cpus)
    cpuset = "none" if survey.cpuset is None else cpulist.show(survey.cpuset)
    found = (
        f"{_count(len(cores), 'core')} (CPU {cpus}) of {len(survey.host_cores)} on "
        f"{survey.machine.name}; affinity mask {cpulist.show(survey.mask)}, cgroup cpuset {cpuset}"
    )
    if gap := survey.gaps.get("cores"):
        return Check("cores", "limited", f"{found}; {gap}", TELL_TOPOLOGY)
    if len(cores) == 1:
        return Check(
            "cores",
            "limited",
            f"{found}; with one core, only one thread count is possible",
            "give the job more cores (taskset, or the container's cpuset)"
            if len(survey.host_cores) > 1
            else "use a machine with more cores",
        )
    return Check("cores", "ok", found)


def quota(survey: Survey) -> Check:
    """The cgroup's limit on CPU time, which no CPU count shows."""
    limit, cores = survey.machine.quota, len(survey.machine.cores)
    if limit is None:
        return Check("CPU quota", "ok", "no limit on CPU time")
    found = f"a quota of {limit:g} CPU{'s' * (limit != 1)} on {_count(cores, 'core')}"
    if limit >= cores:
        return Check("CPU quota", "ok", found)
    whole = max(1, math.floor(limit))
    return Check(
        "CPU quota",
        "limited",
        f"{found}: the kernel pauses jobs that run more threads than that",
        f"raise the container's CPU limit to {cores}, or plan for {_count(whole, 'core')} "
        f"(dltune plan --cores {whole})",
    )


def smt(survey: Survey, root: Path = Path("/")) -> Check:
    """Hardware threads, which the SMT strategies use."""
    cores = survey.machine.cores
    several = [core for core in cores if len(core.cpus) > 1]
    mine = {cpu for core in cores for cpu in core.cpus}
    denied = frozenset().union(*(c for c in survey.host_cores if not c.isdisjoint(mine))) - mine
    if several:
        threads = max(len(core.cpus) for core in several)
        found = f"{threads} hardware threads per core on {_count(len(several), 'core')}"
    else:
        found = "one hardware thread per core"
    if denied:
        return Check(
            "SMT",
            "limited",
            f"{found}; their siblings (CPU {cpulist.show(denied)}) are not available to this "
            "process, and other work can slow these cores down",
            f"add CPU {cpulist.show(denied)} to the affinity mask or the cpuset",
        )
    if several:
        return Check("SMT", "ok", found)
    if text(root / "sys/devices/system/cpu/smt/control") == "off":
        return Check(
            "SMT",
            "limited",
            f"{found}; SMT is switched off, so ops cannot share a core",
            "as root: echo on > /sys/devices/system/cpu/smt/control",
        )
    return Check("SMT", "ok", f"{found}; plans for SMT do not apply")


def tiles(survey: Survey) -> Check:
    """Which cores share a cache: what shared and spread placement differ in."""
    machine = survey.machine
    sizes = sorted({len(tile) for tile in machine.tiles})
    each = "-".join(str(size) for size in dict.fromkeys((sizes[0], sizes[-1])))
    found = f"{_count(len(machine.tiles), 'tile')} of {each} {'core' if each == '1' else 'cores'}"
    if machine.shared_cache is not None and sizes[-1] > 1:
        found += f" sharing {_size(machine.shared_cache)}"
    found += f" on {_count(machine.sockets, 'socket')}"
    gaps = [survey.gaps[key] for key in ("sockets", "tiles") if key in survey.gaps]
    if gaps:
        return Check("tiles", "limited", "; ".join((found, *gaps)), TELL_TOPOLOGY)
    return Check("tiles", "ok", found)


def numa(survey: Survey) -> Check:
    """The memory nodes of the allowed cores."""
    nodes = sorted({core.numa for core in survey.machine.cores})
    if gap := survey.gaps.get("numa"):
        return Check("NUMA", "limited", gap, TELL_TOPOLOGY)
    return Check("NUMA", "ok", f"{_count(len(nodes), 'node')} ({cpulist.show(nodes)})")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"
