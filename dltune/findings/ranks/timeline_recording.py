"""What recording Horovod's timeline takes."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.horovod import WRITER
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "timeline-recording",
    "ranks",
    summary="What recording Horovod's timeline takes.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    report = seen.horovod
    for rank in report.ranks if report and report.timeline else ():
        for thread in rank.threads:
            if thread.name == WRITER:
                yield Finding(
                    cause="timeline-recording",
                    title=f"recording the timeline takes {thread.cpu:.0%} of a core of rank {rank.rank}",
                    evidence=f"thread {thread.tid} writes it, and asks for more without rest",
                    fix="switch it off (HOROVOD_TIMELINE) when step times are to be measured",
                )
