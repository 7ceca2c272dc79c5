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
    summary="Recording Horovod's timeline uses a core.",
    fix="Switch the timeline off while you measure step times.",
    order=4,
)
def find(seen: Seen) -> Iterator[Finding]:
    report = seen.horovod
    for rank in report.ranks if report and report.timeline else ():
        for thread in rank.threads:
            if thread.name == WRITER:
                yield Finding(
                    title=f"recording the timeline uses {thread.cpu:.0%} of a core in rank "
                    f"{rank.rank}",
                    evidence=f"thread {thread.tid} writes the timeline and polls for records all "
                    "the time",
                    fix="switch it off (HOROVOD_TIMELINE) while you measure step times",
                )
