"""A timeline that ends in the middle of a record."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report


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
