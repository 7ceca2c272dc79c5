"""What follows from a report: what is wrong, the figures that say so, and the change to make."""

from __future__ import annotations

import msgspec

from dltune.documents.horovod import Finding, Horovod
from dltune.horovod.diagnosis import cores, failures, timeline
from dltune.horovod.diagnosis.ranks import background


def diagnose(report: Horovod) -> Horovod:
    """The report with its findings, the gravest first."""
    found = [
        *failures.findings(report),
        *cores.findings(report),
        *timeline.findings(report),
    ]
    if not found and report.ranks:
        found.append((0.0, _well(report)))
    ordered = sorted(found, key=lambda one: -one[0])
    return msgspec.structs.replace(report, findings=tuple(finding for _, finding in ordered))


def _well(report: Horovod) -> Finding:
    threads = [thread for rank in report.ranks if (thread := background(rank))]
    cpu = max((thread.cpu for thread in threads), default=0.0)
    wait = max((thread.wait or 0.0 for thread in threads), default=0.0)
    return Finding(
        "Horovod's background threads hold nothing up",
        f"the busiest takes {cpu:.1%} of a core, and waits for one {wait:.1%} of the time at most",
        "look at the ops next: dltune profile",
    )
