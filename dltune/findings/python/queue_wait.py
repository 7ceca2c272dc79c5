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
    summary="Steps that wait for another thread or process of the job.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it."""
    queue = at(seen, "queue")
    if queue:
        yield Finding(
            cause="queue-wait",
            title=f"the job waits {queue.share:.0%} of the time for another of its threads or processes",
            evidence=f"its main thread waited for what one puts into a queue{where(queue)} in "
            f"{queue.share:.0%} of looks, and no step ran",
            fix="let more of them prepare what the steps need, in processes where it is Python's work, "
            "and let the queue hold several batches",
            share=queue.share,
            gain=Gain(0.0, queue.share),
            confidence="measured",
        )
