"""Steps that wait for another thread or process of the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import at_line, significant_share
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "queue-wait",
    "python",
    summary="Steps wait for another thread or process of the job.",
    fix="Let more workers prepare what the steps need (processes for Python code), and let the "
    "queue hold several batches.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for a queue. The cost is their share of the samples of the main thread."""
    queue = significant_share(evidence, "queue")
    if queue:
        yield Finding(
            title=f"the job waits for another of its threads or processes for {queue.share:.0%} "
            "of the time",
            evidence=f"in {queue.share:.0%} of the samples, the main thread waited for a "
            f"queue{at_line(queue)} and no step ran",
            fix="let more workers prepare what the steps need (processes for Python code), and "
            "let the queue hold several batches",
            share=queue.share,
            gain=Gain(0.0, queue.share),
            confidence="measured",
        )
