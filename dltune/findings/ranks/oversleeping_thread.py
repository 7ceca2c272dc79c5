"""A background thread that wakes up later than it asked, so that all ranks wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.horovod import names
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# how late one sleep in twenty is, as a share of HOROVOD_CYCLE_TIME (of a millisecond at least: less
# is a timer's slack), so that a cycle takes half as long again
OVERSLEPT, LEAST_CYCLE = 0.5, 1e-3
# sleeps of which one in twenty is more than one or two
MANY_SLEEPS = 60


@rule(
    "oversleeping-thread",
    "ranks",
    summary="A background thread wakes up late, and all ranks wait for it.",
    fix="Give the background thread its own core (dltune plan allreduce).",
    order=2,
)
def find(seen: Seen) -> Iterator[Finding]:
    late = [
        (slept.p95, rank, rank.cycles, slept)
        for rank in (seen.horovod.ranks if seen.horovod else ())
        if rank.cycles
        and (slept := rank.cycles.oversleep)
        and slept.samples >= MANY_SLEEPS
        and slept.p95 is not None
        and slept.p95 > OVERSLEPT * max(rank.cycles.setting, LEAST_CYCLE)
    ]
    if not late:
        return
    p95, rank, cycles, slept = max(late, key=lambda one: one[0])
    yield Finding(
        title=f"the background thread of {names([one[1] for one in late])} oversleeps: 5 % of its "
        f"sleeps last more than {p95 * 1e3:.1f} ms too long",
        evidence=f"rank {rank.rank}, {slept.samples} sleeps: it wakes up "
        f"{(slept.median or 0) * 1e3:.2f} ms "
        f"late at the median, {(slept.max or 0) * 1e3:.1f} ms at most; HOROVOD_CYCLE_TIME is "
        f"{cycles.setting * 1e3:g} ms; all ranks wait for it in the next collective",
        fix="give the background thread its own core, or let all ranks sleep at the same time: "
        "dltune plan allreduce",
    )
