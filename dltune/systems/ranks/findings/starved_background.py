"""A background thread that is ready to send gradients but has no core."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.findings.spinning_thread import fewer_threads_fix
from dltune.systems.ranks.schemas.horovod import names

# share of the time in which the thread is ready but has no core
MIN_WAIT = 0.10


@rule(
    "starved-background",
    "ranks",
    summary="A communication thread has gradients to send but no core.",
    fix="Give it a core, or part of one (dltune plan allreduce, HOROVOD_THREAD_AFFINITY).",
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waiting threads. The cost is unknown, because ops can run at the same time."""
    waits = [
        (rank, thread)
        for rank in report.ranks(evidence)
        if (thread := rank.thread) and thread.wait is not None and thread.wait > MIN_WAIT
    ]
    if not waits:
        return
    rank, thread = max(waits, key=lambda pair: pair[1].wait or 0.0)
    yield Finding(
        title=f"the background thread of {names([each for each, _ in waits])} waits for a core: "
        f"up to {thread.wait:.0%} of the time",
        evidence=f"rank {rank.rank}: thread {thread.tid} runs {thread.cpu:.0%} of the time and "
        f"waits for a core for {thread.wait:.0%} more, {thread.involuntary:.0f} involuntary "
        "switches/s; all ranks that exchange gradients with it wait too",
        fix=(
            fewer_threads_fix(rank)
            if rank.pytorch
            else "give it a core, or part of one: dltune plan allreduce, or HOROVOD_THREAD_AFFINITY"
        ),
    )
