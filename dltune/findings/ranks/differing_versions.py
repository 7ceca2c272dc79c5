"""Ranks that run different versions of Horovod, PyTorch or MPI."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.horovod import Rank, names
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "differing-versions",
    "ranks",
    summary="Ranks run different versions of Horovod, PyTorch or MPI.",
    fix="Install the same version everywhere.",
)
def find(seen: Seen) -> Iterator[Finding]:
    ranks = seen.horovod.ranks if seen.horovod else ()
    for what, name in (("horovod", "Horovod"), ("pytorch", "PyTorch"), ("mpi", "MPI")):
        found: dict[str, list[Rank]] = {}
        for rank in ranks:
            if version := getattr(rank, what):
                found.setdefault(version, []).append(rank)
        if len(found) > 1:
            yield Finding(
                title=f"ranks run different versions of {name}",
                evidence="; ".join(f"{version}: {names(of)}" for version, of in found.items()),
                fix="install the same version everywhere: the formats of their messages can differ",
            )
