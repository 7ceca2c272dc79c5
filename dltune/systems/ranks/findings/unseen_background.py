"""Ranks whose background thread was not found, so that it is not in the report."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import names


@rule(
    "unseen-background",
    "ranks",
    summary="The communication thread of a rank was not found.",
    fix="Watch the job while it trains.",
    is_limitation=True,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    without = [rank for rank in report.ranks(evidence) if rank.background is None]
    if without:
        yield Finding(
            title=f"no background thread was found in {names(without)}",
            evidence="; ".join(
                f"rank {rank.rank}: {' '.join(rank.unseen) or '?'}" for rank in without
            ),
            fix="watch the job while it trains, after "
            + ("init_process_group" if without[0].pytorch else "hvd.init()"),
        )
