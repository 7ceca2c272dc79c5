"""Ranks that failed. The first one is the cause, whatever the errors of the others are."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import signal_name
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.job.failures import tells_of_another
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import Rank


@rule(
    "failed-rank",
    "ranks",
    summary="A rank failed; the first one to fail is the cause.",
    fix="Read the output of the rank that failed first.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    ended = sorted(
        (
            rank
            for rank in report.ranks(evidence)
            if rank.ended_after is not None and rank.ended != 0
        ),
        key=lambda rank: rank.ended_after or 0.0,
    )
    failed = [rank for rank in ended if rank.ended is not None or rank.error or len(ended) > 1]
    if not failed:
        return
    # an exception that Horovod raises because another rank has ended is not the cause
    causes = [rank for rank in failed if not (rank.error and tells_of_another(rank.error))]
    first = (causes or failed)[0]
    others = [rank for rank in failed if rank is not first]
    description = f"rank {first.rank} (pid {first.pid} on {first.host}) {_describe_end(first)}"
    later = "; ".join(
        f"rank {rank.rank} {_describe_end(rank)} "
        f"{(rank.ended_after or 0.0) - (first.ended_after or 0.0):+.2f} s later"
        for rank in others
    )
    yield Finding(
        title=f"rank {first.rank} failed first" + (", and the others followed" if others else ""),
        evidence=description
        + f" after {first.ended_after or 0.0:.1f} s"
        + (f"; {later}" if later else ""),
        fix=f"read the output of rank {first.rank}"
        + (": the errors of the other ranks only report that it is gone" if others else ""),
        share=1.0,  # the job does not continue
        confidence="measured",
    )


def _describe_end(rank: Rank) -> str:
    if rank.error:
        return f"failed with {rank.error}"
    if rank.ended is None:
        return "ended"
    if rank.ended < 0:
        return f"was ended by {signal_name(-rank.ended)}"
    return f"ended with exit code {rank.ended}"
