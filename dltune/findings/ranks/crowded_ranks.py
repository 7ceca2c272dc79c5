"""Ranks of one host whose threads together want more cores than it has."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.horovod import ThreadUse
from dltune.findings.ranks.spinning_thread import denied, spins
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# threads that want a core, over cores: up to here ranks need not take turns
CROWDED = 1.25
# of a core: threads that want less are not counted
IDLE = 0.05
_MEANS = {"Horovod": "dltune plan allreduce", "PyTorch": "OMP_NUM_THREADS={}"}


@rule(
    "crowded-ranks",
    "ranks",
    summary="The ranks of a host have more runnable threads than the host has cores.",
    fix="Give each rank its share of the cores: fewer intra-op threads.",
    order=2,
)
def find(seen: Seen) -> Iterator[Finding]:
    """The cost: of the time that threads run or are ready to, that without a core. A thread that
    spins wants none, and what it denies the others is its own finding's."""
    report = seen.horovod
    for host, cores in report.cores.items() if report else ():
        here = [rank for rank in (report.ranks if report else ()) if rank.host == host]
        spinning = [rank.thread for rank in here if spins(rank)]
        threads = [t for rank in here for t in rank.threads if t not in spinning]
        wanted = sum(map(_wanted, threads))
        if wanted <= CROWDED * cores:
            continue
        runnable = [thread for thread in threads if _wanted(thread) > IDLE]
        input_ = sum(_wanted(thread) for thread in runnable if thread.role == "input")
        waiting = sum(thread.wait or 0.0 for thread in threads)
        part = max(1, cores // len(here))
        share = (waiting - sum(map(denied, here))) / sum(rank.wanting for rank in here)
        yield Finding(
            title=f"ranks on {host} have more runnable threads than cores: {wanted:.1f} threads "
            f"on {cores} "
            f"core{'s' * (cores > 1)}",
            evidence=f"{len(runnable)} threads of {len(here)} ranks run or wait for a core for "
            "more than "
            f"{IDLE:.0%} of the time (input pipelines: {input_:.1f} cores); together they use "
            f"{sum(t.cpu for t in threads):.1f} cores and wait for {waiting:.1f}",
            fix=f"give each rank its share: about {part} intra-op thread{'s' * (part > 1)} each "
            f"({_MEANS[here[0].library].format(part)})",
            share=share,
            gain=Gain(0.0, share),
            confidence="modelled",
        )


def _wanted(thread: ThreadUse) -> float:
    """Of a core."""
    return thread.cpu + (thread.wait or 0.0)
