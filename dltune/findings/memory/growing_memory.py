"""Memory that grows as long as the job runs."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.seen import Seen

# bytes a second that are no noise, and seconds within which the end is worth a word
LEAST, SOON = 256 << 10, 48 * 3600.0
WATCHED = 10.0  # seconds


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost is no time: when it will end the job."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None or main.growth is None or main.seconds < WATCHED:
        return
    limit = observation.host.memory_limit
    room = observation.host.available
    if limit is not None:
        room = min(room, max(0, limit - main.resident))
    left = room / main.growth if main.growth > 0 else float("inf")
    if main.growth < LEAST or left > SOON:
        return
    yield Finding(
        "growing-memory",
        f"memory grows by {main.growth * 60 / 2**20:.0f} MiB a minute; at this rate there is none "
        f"left in {_time(left)}, and the kernel ends the job",
        f"pid {main.pid} holds {main.resident / 2**20:,.0f} MiB, and {room / 2**20:,.0f} MiB may "
        "still be had",
        "look for what is kept from step to step: lists of tensors, graphs traced or compiled "
        "anew, a new tf.data iterator or model in a loop; what fills once, such as a cache() or a "
        "replay buffer, comes to an end",
        sure="measured",
    )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
