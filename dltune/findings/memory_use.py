"""Findings about memory: growth, memory pressure, and memory that is mapped again and again.

Memory can grow for as long as the job runs. The kernel can take memory from the job while the job
needs it. Freed memory can go back to the kernel, which maps it again in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from dltune.analysis.op_causes import FAULT_SECONDS
from dltune.analysis.roofline import Analysis, Figures, Measured
from dltune.analysis.step_parts import unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Confidence, Finding, Gain, Observation, Process
from dltune.schemas.io import Pressure
from dltune.schemas.settings import Choice
from dltune.system import memory

# bytes per second above the noise, and seconds until the end of the memory that are worth a finding
MIN_GROWTH, HORIZON = 256 << 10, 48 * 3600.0
MIN_WATCH = 10.0  # seconds
# an allocator can fill a part of up to this share of its memory in small steps for a minute
ALLOCATOR_SHARE = 0.1


@rule(
    "growing-memory",
    "memory",
    summary="The job's memory grows as long as the job runs.",
    fix="Find what the script keeps from step to step (tensors in lists, new graphs, new "
    "iterators), and release it.",
)
def growing_memory(evidence: Evidence) -> Iterator[Finding]:
    """Find growing processes. They cost no time, but the kernel kills the job in the end."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None:
        return
    growing = [
        process
        for process in observation.processes
        if (process.growth or 0.0) >= MIN_GROWTH
        and process.seconds >= MIN_WATCH
        and (process is main or not may_be_filling(process))
    ]
    limit = observation.host.memory_limit
    room = observation.host.available
    if limit is not None:
        room = min(room, max(0, limit - main.resident))
    growth = sum(process.growth or 0.0 for process in growing)
    if not growing or room / growth > HORIZON:
        return
    fastest = max(growing, key=lambda process: process.growth or 0.0)
    yield Finding(
        title=f"memory grows by {growth * 60 / 2**20:.0f} MiB per minute; at this rate it runs "
        f"out in {_format_time(room / growth)}, and the kernel kills the job",
        evidence=f"pid {fastest.pid} uses {fastest.resident / 2**20:,.0f} MiB, and "
        f"{room / 2**20:,.0f} MiB are still "
        f"available{f'; {len(growing)} processes grow' if len(growing) > 1 else ''}",
        fix="find what the script keeps from step to step: lists of tensors, graphs that are "
        "traced or compiled again, a new tf.data iterator or model in a loop; a cache() or a "
        "replay buffer stops growing when it is full",
        confidence="measured",
    )


def may_be_filling(process: Process) -> bool:
    """Return whether a process grows so little that its allocator can be the reason."""
    growth = process.growth or 0.0
    return growth >= MIN_GROWTH and growth * process.seconds < ALLOCATOR_SHARE * process.resident


def _format_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


PRESSED = 0.05  # share of the time
RECLAIMS = 100.0  # per second
MIB = 2**20


@rule(
    "memory-pressure",
    "memory",
    summary="Memory is short: the kernel takes pages from the job that the job still needs.",
    fix="Give the container more memory, or make the job hold less (smaller batches, shuffle "
    "buffers and caches, fewer processes).",
)
def memory_pressure(evidence: Evidence) -> Iterator[Finding]:
    """Find memory pressure. The cost is the time in which threads of the job waited for memory. If
    only the pressure of the whole machine is known, the cost is the CPU time of the kernel while
    the control group was at its limit. If nothing on the machine waited, the kernel only dropped
    clean pages of files, which costs little."""
    pressure = _pressure(evidence)
    share = pressure.some if pressure else 0.0
    confidence: Confidence = "measured"
    details = "pages are reclaimed and read again"
    if pressure and share >= PRESSED:
        details += f"; the {pressure.of} waited for memory {share:.0%} of the time"
    is_known = pressure is not None and (pressure.of == "job" or share < PRESSED)
    if not is_known and evidence.observation and (limited := _at_limit(evidence.observation)):
        kernel, limit = limited
        share, confidence = max(share, kernel), "modelled"
        details += f"; {limit}, and the job spent {kernel:.0%} of its CPU time in the kernel"
    if share < PRESSED:
        return
    yield Finding(
        title="memory is short: the kernel takes pages from the job that the job still needs",
        evidence=details,
        fix="give the container more memory, or make the job hold less: smaller batches, shuffle "
        "buffers and caches, fewer processes; `dltune plan memory` reduces the memory of a step",
        share=share,
        gain=Gain(0.0, share),
        confidence=confidence,
    )


def _at_limit(observation: Observation) -> tuple[float, str] | None:
    """Return the kernel's share of the CPU time and a description, if the control group of the job
    reached its limit often."""
    host, main = observation.host, observation.main
    if main is None or main.cpu <= 0 or not host.memory_limit or host.reclaims < RECLAIMS:
        return None
    return main.kernel / main.cpu, (
        f"the control group reached its limit of {host.memory_limit / MIB:,.0f} MiB "
        f"{host.reclaims:,.0f} times per second"
    )


def _pressure(evidence: Evidence) -> Pressure | None:
    """Return the memory pressure of the job, or of the machine if that of the job is unknown."""
    pressures = evidence.watch.pressure if evidence.watch else ()
    memory = [pressure for pressure in pressures if pressure.resource == "memory"]
    # other jobs can be short of memory while this job is not
    job = [pressure for pressure in memory if pressure.of == "job"]
    return max(job or memory, key=lambda pressure: pressure.some, default=None)


SHARE = 0.05  # of the CPU time of the process
# share of the op time; less is within the spread of the measurements
OP_SHARE = 0.02
# makes glibc keep freed memory
_KEEP = (
    "GLIBC_TUNABLES=glibc.malloc.trim_threshold=4294967296:glibc.malloc.mmap_threshold=1073741824"
)


@rule(
    "allocator-trim",
    "memory",
    summary="The allocator returns freed memory to the kernel, and the kernel maps it again in "
    "each step.",
    fix="Make glibc keep freed memory (GLIBC_TUNABLES), or preload tcmalloc or jemalloc.",
    order=1,
)
def allocator_trim(evidence: Evidence) -> Iterator[Finding]:
    """Find page faults. The cost is their number times the cost of a fault on this machine, as a
    share of the CPU time of the process. Without an observation of the job, the page faults of the
    measured ops are used, divided among the threads of each op."""
    main = evidence.main
    if main is not None and main.cpu > 0:
        yield from _observed(main)
    elif evidence.profile is not None:
        yield from _profiled(evidence.profile)


def _observed(main: Process) -> Iterator[Finding]:
    cpu_share = fault_share(main)
    share = cpu_share * min(1.0, main.cpu)  # a process that sleeps loses no time
    if share < SHARE:
        return
    yield Finding(
        title=f"the job causes {main.faults:,.0f} page faults per second",
        evidence=f"at {_fault_seconds() * 1e6:.2g} us each, they take {cpu_share:.0%} of the job's "
        f"CPU time (the kernel takes {main.kernel / main.cpu:.0%} in total): freed memory goes "
        "back to the kernel, which maps it again",
        fix=f"make the allocator keep freed memory: set {_KEEP}, or preload tcmalloc or jemalloc",
        share=share,
        gain=Gain(0.5 * share, min(1.0, main.kernel / max(1.0, main.cpu))),
        confidence="modelled",
        apply=(Choice("allocator", "glibc-keep"),),
        try_next=("allocator",),
    )


def fault_share(main: Process) -> float:
    """Return the share of the CPU time of a process that the kernel needs for its page faults."""
    # bounded by the time in the kernel, because larger pages cost more than the measured page
    return min(main.faults * _fault_seconds(), main.kernel) / main.cpu if main.cpu else 0.0


@cache
def _fault_seconds() -> float:
    """Measure the seconds of a page fault, once for all rules."""
    return memory.fault_seconds()


def _profiled(analysis: Analysis) -> Iterator[Finding]:
    profile = analysis.profile
    count = seconds = op_seconds = 0.0
    for figures in analysis.ops:
        case = _nearest_case(figures, profile.settings.intra)
        if case is None:
            continue
        op_seconds += case.time.median * figures.op.count
        if case.rates.faults:
            count += case.rates.faults * figures.op.count
            seconds += case.rates.faults * figures.op.count / case.time.threads
    counters = profile.counters
    each = (counters and counters.fault_seconds) or FAULT_SECONDS
    share = min(1.0, seconds * each / op_seconds) if op_seconds > 0 else 0.0
    if share < OP_SHARE:
        return
    source = "as measured on this machine" if counters and counters.fault_seconds else "at least"
    cost = share * working(profile)
    yield Finding(
        title=f"the ops of a step cause {count:,.0f} page faults, which take "
        f"{count * each * 1e3:.3g} ms of CPU time",
        evidence=f"a page fault takes {each * 1e6:.2g} us, {source}; freed memory goes back to the "
        "kernel, which maps it again",
        fix=f"make the allocator keep freed memory: set {_KEEP}, preload tcmalloc or jemalloc, or "
        "use huge pages",
        seconds=cost * unrecorded(profile),
        share=cost,
        gain=Gain(0.0, cost),
        confidence="modelled",
        apply=(Choice("allocator", "glibc-keep"),),
        try_next=("allocator",),
    )


def _nearest_case(figures: Figures, intra: int) -> Measured | None:
    """Return the measurement whose thread count is nearest to the job's."""
    return min(figures.cases, key=lambda case: abs(case.time.threads - intra), default=None)
