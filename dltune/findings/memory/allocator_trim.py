"""Memory that goes back to the system, and is mapped anew in each step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.parts import unrecorded, working
from dltune.analysis.roofline import Measured
from dltune.analysis.why import FAULT_SECONDS
from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Process
from dltune.documents.sections.settings import Choice
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.machine import pages

SHARE = 0.05  # of the time that the process had
# of the op time; less could hide in the spread of the measurements
OP_SHARE = 0.02
# by which glibc keeps what is freed
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
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what the kernel took for the page faults of the process, of the CPU time that it
    had, at what a fault costs on this machine. Where the job was not looked at while it ran: each
    fault's seconds of the ops that were measured, divided among the threads of its op."""
    main = seen.observation.main if seen.observation else None
    if main is not None and main.cpu > 0:
        yield from _observed(main)
    elif seen.profile is not None:
        yield from _profiled(seen.profile)


def _observed(main: Process) -> Iterator[Finding]:
    of_cpu = fault_share(main)
    share = of_cpu * min(1.0, main.cpu)  # what of it sleeps costs nothing
    if share < SHARE:
        return
    yield Finding(
        title=f"the job causes {main.faults:,.0f} page faults per second",
        evidence=f"at {_each() * 1e6:.2g} us each, they take {of_cpu:.0%} of the job's CPU time "
        f"(the kernel takes {main.kernel / main.cpu:.0%} in total): freed memory goes back to the "
        "kernel, which maps it again",
        fix=f"make the allocator keep freed memory: set {_KEEP}, or preload tcmalloc or jemalloc",
        share=share,
        gain=Gain(0.5 * share, min(1.0, main.kernel / max(1.0, main.cpu))),
        confidence="modelled",
        apply=(Choice("allocator", "glibc-keep"),),
        try_next=("allocator",),
    )


def fault_share(main: Process) -> float:
    """Of a process' CPU time, what the kernel takes for its page faults."""
    # what it took in the kernel bounds it: larger pages cost more than the one that was tried
    return min(main.faults * _each(), main.kernel) / main.cpu if main.cpu else 0.0


@cache
def _each() -> float:
    """Seconds of a page fault; measured once for the rules that ask."""
    return pages.fault_seconds()


def _profiled(analysis: Analysis) -> Iterator[Finding]:
    profile = analysis.profile
    count = seconds = whole = 0.0
    for figures in analysis.ops:
        case = _usual(figures, profile.settings.intra)
        if case is None:
            continue
        whole += case.time.median * figures.op.count
        if case.rates.faults:
            count += case.rates.faults * figures.op.count
            seconds += case.rates.faults * figures.op.count / case.time.threads
    counters = profile.counters
    each = (counters and counters.fault_seconds) or FAULT_SECONDS
    share = min(1.0, seconds * each / whole) if whole > 0 else 0.0
    if share < OP_SHARE:
        return
    known = "as measured on this machine" if counters and counters.fault_seconds else "at least"
    cost = share * working(profile)
    yield Finding(
        title=f"the ops of a step cause {count:,.0f} page faults, which take "
        f"{count * each * 1e3:.3g} ms of CPU time",
        evidence=f"a page fault takes {each * 1e6:.2g} us, {known}; freed memory goes back to the "
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


def _usual(figures: Figures, intra: int) -> Measured | None:
    """The op at as many threads as the job gives it, or nearest to it."""
    return min(figures.cases, key=lambda case: abs(case.time.threads - intra), default=None)
