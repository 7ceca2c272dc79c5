"""Memory that the kernel takes from the job while the job needs it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Confidence, Finding, Gain, Observation
from dltune.schemas.io import Pressure

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
def find(evidence: Evidence) -> Iterator[Finding]:
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
