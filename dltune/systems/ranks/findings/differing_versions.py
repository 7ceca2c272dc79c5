"""Ranks that run different versions of Horovod, PyTorch or MPI."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import Rank, names


@rule(
    "differing-versions",
    "ranks",
    summary="Ranks run different versions of Horovod, PyTorch or MPI.",
    fix="Install the same version everywhere.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    for field, name in (("horovod", "Horovod"), ("pytorch", "PyTorch"), ("mpi", "MPI")):
        ranks: dict[str, list[Rank]] = {}
        for rank in report.ranks(evidence):
            if version := getattr(rank, field):
                ranks.setdefault(version, []).append(rank)
        if len(ranks) > 1:
            yield Finding(
                title=f"ranks run different versions of {name}",
                evidence="; ".join(
                    f"{version}: {names(group)}" for version, group in ranks.items()
                ),
                fix="install the same version everywhere: the formats of their messages can differ",
            )
