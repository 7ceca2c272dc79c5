"""The report of horovod-report among the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.findings.evidence import Evidence
from dltune.systems.ranks.schemas.horovod import Horovod, Rank, Timeline


def ranks(evidence: Evidence) -> Sequence[Rank]:
    """Return the observed ranks; empty without a report."""
    report = evidence.report(Horovod)
    return report.ranks if report else ()


def timeline(evidence: Evidence) -> Timeline | None:
    """Return the summary of Horovod's timeline."""
    report = evidence.report(Horovod)
    return report.timeline if report else None
