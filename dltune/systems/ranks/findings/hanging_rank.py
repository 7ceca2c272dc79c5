"""A rank that hangs, so that all others wait in the next collective."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import names


@rule(
    "hanging-rank",
    "ranks",
    summary="A rank hangs, and all other ranks wait for it.",
    fix="Find the line where the rank hangs (py-spy dump).",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    hanging = [rank for rank in report.ranks(evidence) if rank.stuck]
    if not hanging:
        return
    yield Finding(
        title=f"{names(hanging)} hang{'s' * (len(hanging) == 1)}, and the others wait for it",
        evidence="; ".join(f"rank {rank.rank}: {rank.stuck}" for rank in hanging),
        fix="find the line where it hangs: py-spy dump --nonblocking --pid "
        + " or ".join(str(rank.pid) for rank in hanging[:4]),
        share=1.0,
        confidence="measured",
    )
