"""A timeline whose writer was ended."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "truncated-timeline",
    "ranks",
    summary="Horovod's timeline ends in the middle of a record.",
    fix="Let the job end normally; the figures cover the time before.",
    order=3,
)
def find(seen: Seen) -> Iterator[Finding]:
    timeline = seen.horovod.timeline if seen.horovod else None
    if timeline and timeline.truncated:
        yield Finding(
            title="the timeline ends in the middle of a record",
            evidence=f"{timeline.path}: {timeline.events} events before it are complete, "
            f"{timeline.seconds:.1f} s",
            fix="let the job end normally; the figures cover the time before",
        )
