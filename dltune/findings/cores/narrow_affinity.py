"""A job that may run on fewer cores than there are, or that has threads for more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Observation, Process
from dltune.documents.sections.settings import Choice
from dltune.findings.cores.allowed import as_usual, crowd
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import intra_op
from dltune.machine import cpulist

# of the cores that it has, below which the job would not use more
WORKS = 0.7


@rule(
    "narrow-affinity",
    "cores",
    summary="The job can run on only some of the CPUs, or uses more threads than it has CPUs.",
    fix="Remove the binding (taskset, numactl, the launcher's option, os.sched_setaffinity), or "
    "set the thread count to the number of allowed CPUs.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what the missing cores would do, if they did as much as those that it has; where it
    cannot have more, what its threads waited for each other."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None or not main.cpus:
        return
    have, there = len(main.cpus), len(observation.host.cpus)
    # a second hyperthread of a core adds little
    host = observation.host
    share = 1 - host.cores(main.cpus) / min(host.cores(host.cpus), host.quota or math.inf)
    if have >= there or share <= 0:
        yield from _too_many(observation, main)
        return
    if main.cpu < WORKS * have or main.ranks is not None:
        return
    yield Finding(
        title=f"the job can run on only {have} of {there} CPUs",
        evidence=f"pid {main.pid} is bound to CPU {cpulist.show(main.cpus)}, although CPUs "
        f"{cpulist.show(observation.host.cpus)} are available; its threads used {main.cpu:.2f} "
        "cores",
        fix="start the job without taskset, numactl or the launcher's binding (mpirun --bind-to "
        "none, srun --cpu-bind=none), and remove os.sched_setaffinity from the script, unless "
        "the binding is intended",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


def _too_many(observation: Observation, main: Process) -> Iterator[Finding]:
    have, online = len(main.cpus), observation.host.online
    share = crowd(observation)
    if have >= online or share <= 0:
        return
    yield Finding(
        title=f"ops use {main.intra} threads, but the job can run on only {have} of {online} CPUs",
        evidence=f"the job is bound to CPU {cpulist.show(main.cpus)}; its threads were ready but "
        f"had no CPU for {main.waited:.0%} of the CPU time they needed",
        fix=f"set {have} intra-op thread{'s' * (have > 1)} ({intra_op(main.framework, have)}), or "
        "give the container more CPUs",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", as_usual(have, main.inter)),),
        try_next=("threads",),
    )
