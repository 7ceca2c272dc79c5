"""Memory that goes back to the kernel and is mapped again in each step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from dltune.analysis.op_causes import FAULT_SECONDS
from dltune.analysis.roofline import Analysis, Figures, Measured
from dltune.analysis.step_parts import unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain, Process
from dltune.schemas.settings import Choice
from dltune.system import memory

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
def find(evidence: Evidence) -> Iterator[Finding]:
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
