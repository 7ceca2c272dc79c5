"""Ranks of the job that are not in the report."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report


@rule(
    "missing-ranks",
    "ranks",
    summary="The report does not contain all ranks of the job.",
    fix="Make a report on each host at the same time, and merge the reports.",
    order=5,
    is_limitation=True,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    size = max((rank.size for rank in report.ranks(evidence)), default=0)
    missing = sorted(set(range(size)) - {rank.rank for rank in report.ranks(evidence)})
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        yield Finding(
            title=f"{len(missing)} of {size} ranks are not in this report",
            evidence=f"rank{'s' * (len(missing) > 1)} {shown}",
            fix="make a report on each host at the same time (--pid), and merge the reports: "
            "dltune horovod-report --merge a.json b.json",
        )
