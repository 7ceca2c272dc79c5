"""Ranks whose background thread was not found, so that the report cannot tell of it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.horovod import names
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "unseen-background",
    "ranks",
    summary="The communication thread of a rank was not found.",
    fix="Watch the job while it trains.",
)
def find(seen: Seen) -> Iterator[Finding]:
    ranks = seen.horovod.ranks if seen.horovod else ()
    without = [rank for rank in ranks if rank.background is None]
    if without:
        yield Finding(
            title=f"no background thread was found in {names(without)}",
            evidence="; ".join(
                f"rank {rank.rank}: {' '.join(rank.unseen) or '?'}" for rank in without
            ),
            fix="watch the job while it trains, after "
            + ("init_process_group" if without[0].pytorch else "hvd.init()"),
        )
