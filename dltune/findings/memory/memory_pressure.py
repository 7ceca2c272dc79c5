"""A job whose memory is taken back while it needs it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.seen import Seen

PRESSED = 0.05  # of the time


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time in which some of the job's threads waited for memory."""
    if seen.io is None or seen.io.watch is None:
        return
    pressures = [one for one in seen.io.watch.pressure if one.resource == "memory"]
    worst = max(pressures, key=lambda one: one.some, default=None)
    if worst is None or worst.some < PRESSED:
        return
    limit = seen.observation.host.memory_limit if seen.observation else None
    within = f"; its control group may have {limit / 2**20:,.0f} MiB" if limit else ""
    yield Finding(
        "memory-pressure",
        f"memory is short: the {worst.of} waited for it {worst.some:.0%} of the time",
        "pages are taken back and read again"
        + (f"; for {worst.full:.0%} of the time nothing else ran" if worst.full else "")
        + within,
        "give the container more memory, or the job less to hold: smaller batches, shuffle buffers "
        "and caches, fewer processes; `dltune plan memory` lowers what a step needs",
        share=worst.some,
        gain=Gain(0.0, worst.some),
        sure="measured",
    )
