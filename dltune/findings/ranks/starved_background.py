"""A background thread that is ready to send gradients and has no core."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.horovod import names
from dltune.findings.ranks.spinning_thread import fewer_threads
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# share of time ready without a core: above it a thread's work is late by more than a tenth
WAITS = 0.10


@rule(
    "starved-background",
    "ranks",
    summary="A communication thread has gradients to send but no core.",
    fix="Give it a core, or part of one (dltune plan allreduce, HOROVOD_THREAD_AFFINITY).",
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """What it costs is not told: ops may run meanwhile."""
    waits = [
        (rank, thread)
        for rank in (seen.horovod.ranks if seen.horovod else ())
        if (thread := rank.thread) and thread.wait is not None and thread.wait > WAITS
    ]
    if not waits:
        return
    rank, thread = max(waits, key=lambda one: one[1].wait or 0.0)
    yield Finding(
        title=f"the background thread of {names([one for one, _ in waits])} waits for a core: "
        f"up to {thread.wait:.0%} of the time",
        evidence=f"rank {rank.rank}: thread {thread.tid} runs {thread.cpu:.0%} of the time and "
        f"waits for a core for {thread.wait:.0%} more, {thread.involuntary:.0f} involuntary "
        "switches/s; all ranks that exchange gradients with it wait too",
        fix=(
            fewer_threads(rank)
            if rank.pytorch
            else "give it a core, or part of one: dltune plan allreduce, or HOROVOD_THREAD_AFFINITY"
        ),
    )
