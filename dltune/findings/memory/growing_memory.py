"""Memory that grows for as long as the job runs."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Process

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
def find(evidence: Evidence) -> Iterator[Finding]:
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
