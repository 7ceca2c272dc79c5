"""Steps that wait for another thread or process of the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "queue-wait",
    "python",
    summary="Steps wait for another thread or process of the job.",
    fix="Let more workers prepare what the steps need (processes for Python code), and let the "
    "queue hold several batches.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it."""
    queue = at(seen, "queue")
    if queue:
        yield Finding(
            title=f"the job waits for another of its threads or processes for {queue.share:.0%} "
            "of the time",
            evidence=f"in {queue.share:.0%} of the samples, the main thread waited for a "
            f"queue{where(queue)} and no step ran",
            fix="let more workers prepare what the steps need (processes for Python code), and "
            "let the queue hold several batches",
            share=queue.share,
            gain=Gain(0.0, queue.share),
            confidence="measured",
        )
