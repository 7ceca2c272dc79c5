"""Ranks that their launcher has bound to fewer cores than their threads want."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.horovod import names
from dltune.findings.cores.narrow_affinity import WORKS
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.machine import cpulist


@rule(
    "ranks-on-one-core",
    "ranks",
    summary="The launcher binds ranks to fewer cores than their threads can use.",
    fix="Start the job without binding (mpirun --bind-to none, srun --cpu-bind=none).",
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """The cost: of the time that a rank's threads run or are ready to, that without a core."""
    tight = [
        rank
        for rank in (seen.horovod.ranks if seen.horovod else ())
        if rank.bound and rank.local_size > 1 and len(rank.cpus) < rank.wanting
    ]
    if not tight:
        yield from _one_of_few(seen)
        return
    worst = min(tight, key=lambda rank: len(rank.cpus))
    cpus = len(worst.cpus)
    share = max(rank.queued / rank.wanting for rank in tight)
    yield Finding(
        title=f"{names(tight)} {'is' if len(tight) == 1 else 'are'} bound to "
        f"{'one core' if cpus == 1 else f'{cpus} CPUs'}"
        f"{'' if len(tight) == 1 else ' each'}, and can use more",
        evidence=f"rank {worst.rank} can use only CPU {', '.join(map(str, worst.cpus))}; its "
        "threads use "
        f"{worst.cpu:.2f} CPUs and wait for {worst.queued:.2f} more",
        fix="start mpirun with --bind-to none, or with a rankfile (dltune plan allreduce): by "
        "default it "
        "binds up to two ranks to a core each"
        if worst.controller == "mpi"
        else "start the job without binding (taskset, srun --cpu-bind=none)",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


def _one_of_few(seen: Seen) -> Iterator[Finding]:
    """A rank that is bound though there is room."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None or not main.ranks or not main.cpus:
        return
    have, there = len(main.cpus), len(observation.host.cpus)
    host, fair = observation.host, there / main.ranks
    share = 1 - host.cores(main.cpus) * main.ranks / host.cores(host.cpus)
    if have >= fair or share <= 0 or main.cpu < WORKS * have:
        return
    yield Finding(
        title=f"the launcher has bound the rank to {have} of {there} CPUs",
        evidence=f"pid {main.pid} can use only CPU {cpulist.show(main.cpus)}; {main.ranks} rank"
        f"{'s' * (main.ranks > 1)} of the job on this node could have {fair:g} each",
        fix="start mpirun with --bind-to none (srun: --cpu-bind=none): by default it binds up to "
        "two "
        "ranks to a core each",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )
