"""A rank that works more than the others, which wait for it in every step."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# a rank's CPU time over the median of ranks; shares of cores below which nothing can be told
UNEVEN, IDLE = 1.3, 0.05


@rule(
    "uneven-ranks",
    "ranks",
    summary="One rank has more work than the others, which wait for it in each step.",
    fix="Give ranks equal batches and cores, and keep extra work of rank 0 short.",
    order=2,
)
def find(seen: Seen) -> Iterator[Finding]:
    """The cost: of a step as long as the busiest rank's work, what even parts would save."""
    report = seen.horovod
    if report is None or report.partial:
        return
    compute = {
        rank.rank: sum(t.cpu for t in rank.threads if t.role in ("compute", "input", "python"))
        for rank in report.ranks
    }
    if len(compute) < 2:
        return
    middle = statistics.median_low(compute.values())
    most = max(compute, key=lambda rank: compute[rank])
    if middle > IDLE and compute[most] > UNEVEN * middle:
        share = 1 - statistics.fmean(compute.values()) / compute[most]
        yield Finding(
            title=f"rank {most} has more work than the others",
            evidence=f"its threads for computation, input and Python use {compute[most]:.2f} "
            "cores, the "
            f"median of all ranks is {middle:.2f}; the others wait for it in each step",
            fix="give ranks equal batches and equal cores, and keep extra work of rank 0 "
            "(logging, checkpoints) short",
            share=share,
            gain=Gain(0.0, share),
            confidence="modelled",
        )
