"""Ranks of one host whose runnable threads outnumber its cores."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.findings.spinning_thread import denied_cores, is_spinning
from dltune.systems.ranks.schemas.horovod import Horovod, ThreadUse

# runnable threads per core; with fewer, threads hardly wait
CROWDED = 1.25
# share of a core; threads that need less are not counted
IDLE = 0.05
_SETTINGS = {"Horovod": "dltune plan allreduce", "PyTorch": "OMP_NUM_THREADS={}"}


@rule(
    "crowded-ranks",
    "ranks",
    summary="The ranks of a host have more runnable threads than the host has cores.",
    fix="Give each rank its share of the cores: fewer intra-op threads.",
    order=2,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find crowded hosts. The cost is the share of the runnable time in which threads had no core.
    The rule `spinning-thread` reports the cost of spinning threads, so they are not counted."""
    found = evidence.report(Horovod)
    for host, cores in found.cores.items() if found else ():
        ranks = [rank for rank in report.ranks(evidence) if rank.host == host]
        spinning = [rank.thread for rank in ranks if is_spinning(rank)]
        threads = [t for rank in ranks for t in rank.threads if t not in spinning]
        needed = sum(map(_needed_cores, threads))
        if needed <= CROWDED * cores:
            continue
        runnable = [thread for thread in threads if _needed_cores(thread) > IDLE]
        inputs = sum(_needed_cores(thread) for thread in runnable if thread.role == "input")
        waiting = sum(thread.wait or 0.0 for thread in threads)
        part = max(1, cores // len(ranks))
        share = (waiting - sum(map(denied_cores, ranks))) / sum(rank.wanting for rank in ranks)
        yield Finding(
            title=f"ranks on {host} have more runnable threads than cores: {needed:.1f} threads "
            f"on {cores} core{'s' * (cores > 1)}",
            evidence=f"{len(runnable)} threads of {len(ranks)} ranks run or wait for a core for "
            f"more than {IDLE:.0%} of the time (input pipelines: {inputs:.1f} cores); together "
            f"they use {sum(t.cpu for t in threads):.1f} cores and wait for {waiting:.1f}",
            fix=f"give each rank its share: about {part} intra-op thread{'s' * (part > 1)} each "
            f"({_SETTINGS[ranks[0].library].format(part)})",
            share=share,
            gain=Gain(0.0, share),
            confidence="modelled",
        )


def _needed_cores(thread: ThreadUse) -> float:
    """Return the share of a core that a thread uses or waits for."""
    return thread.cpu + (thread.wait or 0.0)
