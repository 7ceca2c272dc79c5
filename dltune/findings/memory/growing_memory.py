"""Memory that grows as long as the job runs."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.observation import Process
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# bytes a second that are no noise, and seconds within which the end is worth a word
LEAST, SOON = 256 << 10, 48 * 3600.0
WATCHED = 10.0  # seconds
# an allocator may fill so small a part of what is held, bit by bit, for a minute
BY_BITS = 0.1


@rule(
    "growing-memory",
    "memory",
    summary="The job's memory grows as long as the job runs.",
    fix="Find what the script keeps from step to step (tensors in lists, new graphs, new "
    "iterators), and release it.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost is no time: when it will end the job."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None:
        return
    growing = [
        one
        for one in observation.processes
        if (one.growth or 0.0) >= LEAST
        and one.seconds >= WATCHED
        and (one is main or not may_be_filling(one))
    ]
    limit = observation.host.memory_limit
    room = observation.host.available
    if limit is not None:
        room = min(room, max(0, limit - main.resident))
    growth = sum(one.growth or 0.0 for one in growing)
    if not growing or room / growth > SOON:
        return
    most = max(growing, key=lambda one: one.growth or 0.0)
    yield Finding(
        title=f"memory grows by {growth * 60 / 2**20:.0f} MiB per minute; at this rate it runs "
        f"out in {_time(room / growth)}, and the kernel kills the job",
        evidence=f"pid {most.pid} uses {most.resident / 2**20:,.0f} MiB, and {room / 2**20:,.0f} "
        f"MiB are still available{f'; {len(growing)} processes grow' if len(growing) > 1 else ''}",
        fix="find what the script keeps from step to step: lists of tensors, graphs that are "
        "traced or compiled again, a new tf.data iterator or model in a loop; a cache() or a "
        "replay buffer stops growing when it is full",
        confidence="measured",
    )


def may_be_filling(one: Process) -> bool:
    """Whether it seems to grow, and that may be an allocator's doing, by how little it came to."""
    growth = one.growth or 0.0
    return growth >= LEAST and growth * one.seconds < BY_BITS * one.resident


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
