"""Threads that are ready and wait for a CPU while data is read."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import share

# of a thread's time
QUEUED = 0.20


@rule(
    "queued-threads",
    "data",
    summary="Reading threads are ready but wait for a CPU.",
    fix="Run at most as many reading and decoding threads as there are cores.",
    order=4,
)
def find(seen: Seen) -> Iterator[Finding]:
    """Where the cores themselves were looked at, the rules on these tell it with its cost."""
    if seen.observation:
        return
    readers = seen.io.watch.readers if seen.io and seen.io.watch else []
    times = [(thread.queued or 0.0, process, thread) for process, thread in readers]
    queued = [one for one in times if one[0] > QUEUED * one[2].seconds]
    if queued:
        seconds, process, thread = max(queued, key=lambda one: one[0])
        yield Finding(
            title=f"{len(queued)} reading thread{'s wait' if len(queued) > 1 else ' waits'} for a "
            "CPU for "
            f"more than {share(QUEUED)} of the time",
            evidence=f"most: thread {thread.tid} ({thread.name}) of pid {process.pid}, "
            f"{seconds:.1f} of "
            f"{thread.seconds:.1f} s ready and not running; "
            f"{thread.involuntary / thread.seconds:.0f} involuntary switches/s",
            fix="run at most as many reading and decoding threads as there are cores, or free "
            "some cores",
            confidence="measured",
        )
