"""A background thread that wakes up too late, so that all ranks wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import names

# delay of 5 % of the sleeps as a share of HOROVOD_CYCLE_TIME, which makes a cycle 1.5 times as
# long; relative to at least MIN_CYCLE seconds, because timers have slack
LATE, MIN_CYCLE = 0.5, 1e-3
# sleeps, so that 5 % are more than one or two
MIN_SLEEPS = 60


@rule(
    "oversleeping-thread",
    "ranks",
    summary="A background thread wakes up late, and all ranks wait for it.",
    fix="Give the background thread its own core (dltune plan allreduce).",
    order=2,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    late = [
        (delay.p95, rank, rank.cycles, delay)
        for rank in report.ranks(evidence)
        if rank.cycles
        and (delay := rank.cycles.oversleep)
        and delay.samples >= MIN_SLEEPS
        and delay.p95 is not None
        and delay.p95 > LATE * max(rank.cycles.setting, MIN_CYCLE)
    ]
    if not late:
        return
    p95, rank, cycles, delay = max(late, key=lambda thread: thread[0])
    yield Finding(
        title=f"the background thread of {names([each for _, each, *_ in late])} oversleeps: 5 % "
        f"of its sleeps last more than {p95 * 1e3:.1f} ms too long",
        evidence=f"rank {rank.rank}, {delay.samples} sleeps: it wakes up "
        f"{(delay.median or 0) * 1e3:.2f} ms late at the median, {(delay.max or 0) * 1e3:.1f} ms "
        f"at most; HOROVOD_CYCLE_TIME is {cycles.setting * 1e3:g} ms; all ranks wait for it in the "
        "next collective",
        fix="give the background thread its own core, or let all ranks sleep at the same time: "
        "dltune plan allreduce",
    )
