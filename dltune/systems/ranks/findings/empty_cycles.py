"""Horovod's cycles, if they are so short that nearly all transfer nothing."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report

# share of cycles that transfer nothing, and cycles per second
EMPTY, MANY = 0.95, 200


@rule(
    "empty-cycles",
    "ranks",
    summary="Horovod's cycles are so short that nearly all transfer nothing.",
    fix="Make cycles longer (HOROVOD_CYCLE_TIME, dltune plan allreduce).",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    timeline = report.timeline(evidence)
    cycles = timeline.cycles if timeline else None
    if cycles and cycles.empty is not None and cycles.empty > EMPTY and cycles.rate > MANY:
        yield Finding(
            title=f"{cycles.empty:.0%} of cycles transfer nothing",
            evidence=f"{cycles.rate:.0f} cycles/s at HOROVOD_CYCLE_TIME {cycles.setting * 1e3:g} "
            "ms, and each asks every rank for its ready gradients",
            fix="make cycles longer: dltune plan allreduce chooses HOROVOD_CYCLE_TIME, and over "
            "MPI lets the thread rest until there is something to send",
        )
