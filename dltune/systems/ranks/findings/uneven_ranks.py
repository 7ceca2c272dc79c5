"""A rank with more work than the others, which wait for it in every step."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.systems.ranks.schemas.horovod import Horovod

# CPU time of a rank relative to the median; share of a core below which ranks cannot be compared
UNEVEN, IDLE = 1.3, 0.05


@rule(
    "uneven-ranks",
    "ranks",
    summary="One rank has more work than the others, which wait for it in each step.",
    fix="Give ranks equal batches and cores, and keep extra work of rank 0 short.",
    order=2,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find the busiest rank. The cost is the time that even work would save, if a step takes as
    long as the work of this rank."""
    report = evidence.report(Horovod)
    if report is None or report.partial:
        return
    compute = {
        rank.rank: sum(t.cpu for t in rank.threads if t.role in ("compute", "input", "python"))
        for rank in report.ranks
    }
    if len(compute) < 2:
        return
    median = statistics.median_low(compute.values())
    busiest = max(compute, key=lambda rank: compute[rank])
    if median > IDLE and compute[busiest] > UNEVEN * median:
        share = 1 - statistics.fmean(compute.values()) / compute[busiest]
        yield Finding(
            title=f"rank {busiest} has more work than the others",
            evidence=f"its threads for computation, input and Python use {compute[busiest]:.2f} "
            f"cores, the median of all ranks is {median:.2f}; the others wait for it in each step",
            fix="give ranks equal batches and equal cores, and keep extra work of rank 0 "
            "(logging, checkpoints) short",
            share=share,
            gain=Gain(0.0, share),
            confidence="modelled",
        )
