"""What follows from a report: what is wrong, the figures that say so, and the change to make."""

from __future__ import annotations

import msgspec

from dltune.documents.horovod import Finding, Horovod
from dltune.horovod.diagnosis import cores, failures, timeline
from dltune.horovod.diagnosis.ranks import background

# what keeps the job from working or the report from telling all, what happens on the cores, what a
# timeline shows (nothing where there is none): the gravest first
CHECKS = (
    failures.ended,
    failures.stuck,
    failures.versions,
    failures.blind,
    cores.bound,
    cores.spinning,
    cores.waiting,
    cores.crowded,
    timeline.late,
    cores.oversleep,
    timeline.batches,
    cores.uneven,
    timeline.cycle_time,
    timeline.cut_short,
    timeline.recording,
    failures.absent,
)


def diagnose(report: Horovod) -> Horovod:
    """The report with its findings, the gravest first."""
    findings = tuple(finding for check in CHECKS for finding in check(report))
    if not findings and report.ranks:
        findings = (_well(report),)
    return msgspec.structs.replace(report, findings=findings)


def _well(report: Horovod) -> Finding:
    threads = [thread for rank in report.ranks if (thread := background(rank))]
    cpu = max((thread.cpu for thread in threads), default=0.0)
    wait = max((thread.wait or 0.0 for thread in threads), default=0.0)
    return Finding(
        "Horovod's background threads hold nothing up",
        f"the busiest takes {cpu:.1%} of a core, and waits for one {wait:.1%} of the time at most",
        "look at the ops next: dltune profile",
    )
