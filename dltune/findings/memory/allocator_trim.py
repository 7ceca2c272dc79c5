"""Memory that goes back to the system, and is mapped anew in each step."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.seen import Seen
from dltune.machine import pages

SHARE = 0.05  # of the time that the process had


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what the kernel took for the page faults of the process, of the CPU time that it
    had, at what a fault costs on this machine."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None or main.cpu <= 0:
        return
    each = pages.fault_seconds()
    # what it took in the kernel bounds it: larger pages cost more than the one that was tried
    share = min(main.faults * each, main.kernel) / main.cpu
    if share < SHARE:
        return
    yield Finding(
        "allocator-trim",
        f"the job has {main.faults:,.0f} page faults a second",
        f"at {each * 1e6:.2g} us each they take {share:.0%} of its CPU time, of which "
        f"{main.kernel / main.cpu:.0%} is spent in the kernel: memory that is freed goes back to "
        "the system and is mapped anew",
        "let the allocator keep what is freed: GLIBC_TUNABLES=glibc.malloc.trim_threshold=..., "
        "tcmalloc or jemalloc",
        share=share,
        gain=Gain(0.5 * share, min(1.0, main.kernel / main.cpu)),
        sure="modelled",
        choices=(Choice("allocator", "glibc-keep"),),
        tries=("allocator",),
    )
