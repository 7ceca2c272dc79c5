"""Checks of the hardware: cores, memory and performance counters, as lines of the report."""

from __future__ import annotations

import math
import os
from pathlib import Path

from dltune.base import formatting
from dltune.system import memory
from dltune.system.checks import Check
from dltune.system.kernel_files import format_cpulist, text
from dltune.system.perf.access import USER_LEVEL, PerfEvents, Refused
from dltune.system.perf.counters import Outcome
from dltune.system.topology import Survey

# The cores that a job can use, and the parts they share

TELL_TOPOLOGY = "configure the hypervisor to pass the host's topology and caches to the guest"


def allowed(survey: Survey) -> Check:
    """How many cores, of how many, and by whose leave."""
    cores = survey.machine.cores
    cpus = format_cpulist(cpu for core in cores for cpu in core.cpus)
    cpuset = "none" if survey.cpuset is None else format_cpulist(survey.cpuset)
    found = (
        f"{formatting.counted(len(cores), 'core')} (CPU {cpus}) of {len(survey.host_cores)} on "
        f"{survey.machine.name}; affinity mask {format_cpulist(survey.mask)}, "
        f"cgroup cpuset {cpuset}"
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
    found = f"a quota of {limit:g} CPU{'s' * (limit != 1)} on {formatting.counted(cores, 'core')}"
    if limit >= cores:
        return Check("CPU quota", "ok", found)
    whole = max(1, math.floor(limit))
    return Check(
        "CPU quota",
        "limited",
        f"{found}: the kernel pauses jobs that run more threads than that",
        f"raise the container's CPU limit to {cores}, or plan for "
        f"{formatting.counted(whole, 'core')} "
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
        found = f"{threads} hardware threads per core on {formatting.counted(len(several), 'core')}"
    else:
        found = "one hardware thread per core"
    if denied:
        return Check(
            "SMT",
            "limited",
            f"{found}; their siblings (CPU {format_cpulist(denied)}) are not available to this "
            "process, and other work can slow these cores down",
            f"add CPU {format_cpulist(denied)} to the affinity mask or the cpuset",
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
    number = formatting.counted(len(machine.tiles), "tile")
    found = f"{number} of {each} {'core' if each == '1' else 'cores'}"
    if machine.shared_cache is not None and sizes[-1] > 1:
        found += f" sharing {_size(machine.shared_cache)}"
    found += f" on {formatting.counted(machine.sockets, 'socket')}"
    gaps = [survey.gaps[key] for key in ("sockets", "tiles") if key in survey.gaps]
    if gaps:
        return Check("tiles", "limited", "; ".join((found, *gaps)), TELL_TOPOLOGY)
    return Check("tiles", "ok", found)


def numa(survey: Survey) -> Check:
    """The memory nodes of the allowed cores."""
    nodes = sorted({core.numa for core in survey.machine.cores})
    if gap := survey.gaps.get("numa"):
        return Check("NUMA", "limited", gap, TELL_TOPOLOGY)
    return Check(
        "NUMA", "ok", f"{formatting.counted(len(nodes), 'node')} ({format_cpulist(nodes)})"
    )


def _size(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


# Memory for a job


def allocators() -> Check:
    """Check which allocators other than glibc's are installed and load."""
    found = [name for name in memory.SONAMES if memory.find_allocator(name, os.environ)]
    version = memory.glibc()
    own = f"glibc {version[0]}.{version[1]}" if version else "the C library's allocator"
    told = ", ".join([own, *found])
    if found:
        return Check("allocators", "ok", told)
    return Check(
        "allocators",
        "limited",
        f"{told} only",
        f"to let dltune tune try another allocator, install {memory.PACKAGES['jemalloc']}",
    )


def huge_pages(root: Path = Path("/")) -> Check:
    """Check the mode of transparent huge pages, which spare large tensors most of their page faults
    and TLB misses."""
    mode = memory.huge_page_mode(root)
    if mode is None:
        return Check(
            "huge pages",
            "missing",
            "the kernel has no transparent huge pages",
            "use a kernel built with CONFIG_TRANSPARENT_HUGEPAGE",
        )
    if mode == "always":
        return Check("huge pages", "ok", "transparent huge pages: always")
    if mode == "madvise":
        return Check(
            "huge pages",
            "limited",
            "transparent huge pages: madvise, so only on request; TensorFlow's allocator does "
            "not request them",
            "set GLIBC_TUNABLES=glibc.malloc.hugetlb=1 for the job (glibc 2.35 or newer)",
        )
    return Check(
        "huge pages",
        "limited",
        f"transparent huge pages: {mode}",
        "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )


# Performance counters


def perf_events(found: PerfEvents) -> list[Check]:
    """Hardware counters, software counters and the level of kernel.perf_event_paranoid."""
    return [
        _counters("hardware events", found.hardware),
        _counters("software events", found.software),
        _paranoid(found),
    ]


def _counters(name: str, refused: Refused | None) -> Check:
    if refused is None:
        return Check(name, "ok", "available")
    return Check(name, "missing", refused.reason, refused.remedy)


def _paranoid(found: PerfEvents) -> Check:
    level = found.paranoid
    if level is None:
        return Check(
            "perf paranoid",
            "missing",
            "the kernel has no kernel.perf_event_paranoid: it was built without perf events",
            "use a kernel with CONFIG_PERF_EVENTS",
        )
    if level > USER_LEVEL and found.software is not None:
        return Check(
            "perf paranoid",
            "limited",
            f"level {level}: only root can count events",
            f"as root: sysctl kernel.perf_event_paranoid={USER_LEVEL}",
        )
    return Check(
        "perf paranoid",
        "ok",
        f"level {level}: you can count events in the user space of your processes",
    )


def counted(outcome: Outcome) -> Check:
    """A counter against work that is known; one that counts wrong must not be believed."""
    if outcome.right is None:
        return Check(outcome.name, "limited", f"not tested: {outcome.sentence}")
    if outcome.right:
        return Check(outcome.name, "ok", outcome.sentence)
    return Check(
        outcome.name,
        "missing",
        outcome.sentence,
        "do not count these events on this machine: dltune profile --counters none",
        required=True,
    )
