"""Reading threads that are ready but wait for a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# share of a thread's time
QUEUED = 0.20


@rule(
    "queued-threads",
    "data",
    summary="Reading threads are ready but wait for a CPU.",
    fix="Run at most as many reading and decoding threads as there are cores.",
    order=4,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waiting threads. If the job was observed, rules of the group `cores` report them."""
    if evidence.observation:
        return
    queued = [
        (thread.queued, process, thread)
        for process, thread in evidence.readers
        if thread.queued and thread.queued > QUEUED * thread.seconds
    ]
    if queued:
        seconds, process, thread = max(queued, key=lambda each: each[0])
        yield Finding(
            title=f"{len(queued)} reading thread{'s wait' if len(queued) > 1 else ' waits'} for a "
            f"CPU for more than {share(QUEUED)} of the time",
            evidence=f"most: thread {thread.tid} ({thread.name}) of pid {process.pid}, "
            f"{seconds:.1f} of {thread.seconds:.1f} s ready and not running; "
            f"{thread.involuntary / thread.seconds:.0f} involuntary switches/s",
            fix="run at most as many reading and decoding threads as there are cores, or free "
            "some cores",
            confidence="measured",
        )
