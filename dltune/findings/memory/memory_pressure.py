"""A job whose memory is taken back while it needs it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Confidence, Finding, Gain
from dltune.documents.io import Pressure
from dltune.documents.observation import Observation
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

PRESSED = 0.05  # of the time
RECLAIMS = 100.0  # a second
MIB = 2**20


@rule(
    "memory-pressure",
    "memory",
    summary="Memory is short: the kernel takes pages from the job that the job still needs.",
    fix="Give the container more memory, or make the job hold less (smaller batches, shuffle "
    "buffers and caches, fewer processes).",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time in which some of the job's threads waited for memory. Where that is not
    known of the job alone, what the kernel took of its CPU time while its group was at its limit;
    but where nothing on the machine waited, clean pages of files were let go, which costs little.
    """
    pressure = _pressure(seen)
    share = pressure.some if pressure else 0.0
    sure: Confidence = "measured"
    evidence = "pages are reclaimed and read again"
    if pressure and share >= PRESSED:
        evidence += f"; the {pressure.of} waited for memory {share:.0%} of the time"
    answered = pressure is not None and (pressure.of == "job" or share < PRESSED)
    if not answered and seen.observation and (limited := _at_limit(seen.observation)):
        kernel, where = limited
        share, sure = max(share, kernel), "modelled"
        evidence += f"; {where}, and the job spent {kernel:.0%} of its CPU time in the kernel"
    if share < PRESSED:
        return
    yield Finding(
        title="memory is short: the kernel takes pages from the job that the job still needs",
        evidence=evidence,
        fix="give the container more memory, or make the job hold less: smaller batches, shuffle "
        "buffers and caches, fewer processes; `dltune plan memory` reduces the memory of a step",
        share=share,
        gain=Gain(0.0, share),
        confidence=sure,
    )


def _at_limit(observation: Observation) -> tuple[float, str] | None:
    """What the kernel took of the CPU time of a job whose control group was at its limit, and how
    often it was; None where it was not."""
    host, main = observation.host, observation.main
    if main is None or main.cpu <= 0 or not host.memory_limit or host.reclaims < RECLAIMS:
        return None
    return main.kernel / main.cpu, (
        f"the control group reached its limit of {host.memory_limit / MIB:,.0f} MiB "
        f"{host.reclaims:,.0f} times per second"
    )


def _pressure(seen: Seen) -> Pressure | None:
    watch = seen.io.watch if seen.io else None
    found = [one for one in watch.pressure if one.resource == "memory"] if watch else []
    # others may be short of memory where the job is not
    own = [one for one in found if one.of == "job"]
    return max(own or found, key=lambda one: one.some, default=None)
