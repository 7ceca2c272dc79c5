"""Ranks that failed: the first of them is the cause, whatever the others say."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.horovod import Rank
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.job.last_words import tells_of_another
from dltune.words import signal_name


@rule(
    "failed-rank",
    "ranks",
    summary="A rank failed; the first one to fail is the cause.",
    fix="Read the output of the rank that failed first.",
)
def find(seen: Seen) -> Iterator[Finding]:
    dead = sorted(
        (
            rank
            for rank in (seen.horovod.ranks if seen.horovod else ())
            if rank.ended_after is not None and rank.ended != 0
        ),
        key=lambda rank: rank.ended_after or 0.0,
    )
    failed = [rank for rank in dead if rank.ended is not None or rank.error or len(dead) > 1]
    if not failed:
        return
    # an exception that Horovod raises because another rank is gone is not the cause
    own = [rank for rank in failed if not (rank.error and tells_of_another(rank.error))]
    first = (own or failed)[0]
    rest = [rank for rank in failed if rank is not first]
    how = f"rank {first.rank} (pid {first.pid} on {first.host}) {_how(first)}"
    told = "; ".join(
        f"rank {rank.rank} {_how(rank)} "
        f"{(rank.ended_after or 0.0) - (first.ended_after or 0.0):+.2f} s later"
        for rank in rest
    )
    yield Finding(
        title=f"rank {first.rank} failed first" + (", and the others followed" if rest else ""),
        evidence=how + f" after {first.ended_after or 0.0:.1f} s" + (f"; {told}" if told else ""),
        fix=f"read the output of rank {first.rank}"
        + (": the errors of the other ranks only report that it is gone" if rest else ""),
        share=1.0,  # the job does not go on
        confidence="measured",
    )


def _how(rank: Rank) -> str:
    if rank.error:
        return f"failed with {rank.error}"
    if rank.ended is None:
        return "ended"
    if rank.ended < 0:
        return f"was ended by {signal_name(-rank.ended)}"
    return f"ended with exit code {rank.ended}"
