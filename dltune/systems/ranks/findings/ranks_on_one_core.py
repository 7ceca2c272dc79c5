"""Ranks that their launcher has bound to fewer cores than their threads can use."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.cores.narrow_affinity import BUSY
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.system.kernel_files import format_cpulist
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import names


@rule(
    "ranks-on-one-core",
    "ranks",
    summary="The launcher binds ranks to fewer cores than their threads can use.",
    fix="Start the job without binding (mpirun --bind-to none, srun --cpu-bind=none).",
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find bound ranks. The cost is the share of the runnable time of a rank's threads in which
    they had no core."""
    bound = [
        rank
        for rank in report.ranks(evidence)
        if rank.bound and rank.local_size > 1 and len(rank.cpus) < rank.wanting
    ]
    if not bound:
        yield from _single_rank(evidence)
        return
    worst = min(bound, key=lambda rank: len(rank.cpus))
    cpus = len(worst.cpus)
    share = max(rank.queued / rank.wanting for rank in bound)
    yield Finding(
        title=f"{names(bound)} {'is' if len(bound) == 1 else 'are'} bound to "
        f"{'one core' if cpus == 1 else f'{cpus} CPUs'}"
        f"{'' if len(bound) == 1 else ' each'}, and can use more",
        evidence=f"rank {worst.rank} can use only CPU {', '.join(map(str, worst.cpus))}; its "
        f"threads use {worst.cpu:.2f} CPUs and wait for {worst.queued:.2f} more",
        fix="start mpirun with --bind-to none, or with a rankfile (dltune plan allreduce): by "
        "default it binds up to two ranks to a core each"
        if worst.controller == "mpi"
        else "start the job without binding (taskset, srun --cpu-bind=none)",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


def _single_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find a rank that is bound although more cores are available for each rank."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None or not main.ranks or not main.cpus:
        return
    allowed, available = len(main.cpus), len(observation.host.cpus)
    host, fair = observation.host, available / main.ranks
    share = 1 - host.cores(main.cpus) * main.ranks / host.cores(host.cpus)
    if allowed >= fair or share <= 0 or main.cpu < BUSY * allowed:
        return
    yield Finding(
        title=f"the launcher has bound the rank to {allowed} of {available} CPUs",
        evidence=f"pid {main.pid} can use only CPU {format_cpulist(main.cpus)}; {main.ranks} rank"
        f"{'s' * (main.ranks > 1)} of the job on this node could have {fair:g} each",
        fix="start mpirun with --bind-to none (srun: --cpu-bind=none): by default it binds up to "
        "two ranks to a core each",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )
