"""The core that recording of Horovod's timeline uses."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import WRITER


@rule(
    "timeline-recording",
    "ranks",
    summary="Recording Horovod's timeline uses a core.",
    fix="Switch the timeline off while you measure step times.",
    order=4,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    for rank in report.ranks(evidence) if report.timeline(evidence) else ():
        for thread in rank.threads:
            if thread.name == WRITER:
                yield Finding(
                    title=f"recording the timeline uses {thread.cpu:.0%} of a core in rank "
                    f"{rank.rank}",
                    evidence=f"thread {thread.tid} writes the timeline and polls for records all "
                    "the time",
                    fix="switch it off (HOROVOD_TIMELINE) while you measure step times",
                )
