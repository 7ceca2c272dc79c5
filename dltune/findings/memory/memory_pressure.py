"""A job whose memory is taken back while it needs it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.io import Pressure
from dltune.findings.seen import Seen

PRESSED = 0.05  # of the time
RECLAIMS = 100.0  # a second
MIB = 2**20


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time in which some of the job's threads waited for memory, or what the kernel
    took of the job's CPU time while its group was at its limit."""
    pressure = _pressure(seen)
    share = pressure.some if pressure else 0.0
    host = seen.observation.host if seen.observation else None
    main = seen.observation.main if seen.observation else None
    evidence = "pages are taken back and read again"
    if pressure and share >= PRESSED:
        evidence += f"; the {pressure.of} waited for memory {share:.0%} of the time"
    if host and main and main.cpu > 0 and host.memory_limit and host.reclaims >= RECLAIMS:
        share = max(share, main.kernel / main.cpu)
        evidence += (
            f"; its control group came to its limit of {host.memory_limit / MIB:,.0f} MiB "
            f"{host.reclaims:,.0f} times a second, and {main.kernel / main.cpu:.0%} of its CPU "
            "time was spent in the kernel"
        )
    if share < PRESSED:
        return
    yield Finding(
        "memory-pressure",
        "memory is short: what the job needs is taken from it",
        evidence,
        "give the container more memory, or the job less to hold: smaller batches, shuffle buffers "
        "and caches, fewer processes; `dltune plan memory` lowers what a step needs",
        share=share,
        gain=Gain(0.0, share),
        sure="measured",
    )


def _pressure(seen: Seen) -> Pressure | None:
    watch = seen.io.watch if seen.io else None
    found = [one for one in watch.pressure if one.resource == "memory"] if watch else []
    # others may be short of memory where the job is not
    own = [one for one in found if one.of == "job"]
    return max(own or found, key=lambda one: one.some, default=None)
