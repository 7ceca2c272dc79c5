"""A timeline that ends in the middle of a record."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.evidence import Evidence
from dltune.findings.ranks import report
from dltune.findings.rule import rule


@rule(
    "truncated-timeline",
    "ranks",
    summary="Horovod's timeline ends in the middle of a record.",
    fix="Let the job end normally; the figures cover the time before.",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    timeline = report.timeline(evidence)
    if timeline and timeline.truncated:
        yield Finding(
            title="the timeline ends in the middle of a record",
            evidence=f"{timeline.path}: {timeline.events} events before it are complete, "
            f"{timeline.seconds:.1f} s",
            fix="let the job end normally; the figures cover the time before",
        )
