"""A job that can run on only some of the cores, or that has more threads than cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.findings.cores.thread_limits import crowding_share, default_threads
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.findings.thread_settings import advise_intra_op
from dltune.schemas.diagnosis import Finding, Gain, Observation, Process
from dltune.schemas.settings import Choice
from dltune.system.kernel_files import format_cpulist

# share of its cores that a job uses if it can use more
BUSY = 0.7


@rule(
    "narrow-affinity",
    "cores",
    summary="The job can run on only some of the CPUs, or uses more threads than it has CPUs.",
    fix="Remove the binding (taskset, numactl, the launcher's option, os.sched_setaffinity), or "
    "set the thread count to the number of allowed CPUs.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find missing cores or too many threads. The cost of missing cores is their share of all
    cores. If no more cores are available, the cost is the wait of the threads for one another."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None or not main.cpus:
        return
    allowed, available = len(main.cpus), len(observation.host.cpus)
    # the second hyperthread of a core adds little
    host = observation.host
    share = 1 - host.cores(main.cpus) / min(host.cores(host.cpus), host.quota or math.inf)
    if allowed >= available or share <= 0:
        yield from _too_many(observation, main)
        return
    if main.cpu < BUSY * allowed or main.ranks is not None:
        return
    yield Finding(
        title=f"the job can run on only {allowed} of {available} CPUs",
        evidence=f"pid {main.pid} is bound to CPU {format_cpulist(main.cpus)}, although CPUs "
        f"{format_cpulist(observation.host.cpus)} are available; its threads used {main.cpu:.2f} "
        "cores",
        fix="start the job without taskset, numactl or the launcher's binding (mpirun --bind-to "
        "none, srun --cpu-bind=none), and remove os.sched_setaffinity from the script, unless "
        "the binding is intended",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


def _too_many(observation: Observation, main: Process) -> Iterator[Finding]:
    allowed, online = len(main.cpus), observation.host.online
    share = crowding_share(observation)
    if allowed >= online or share <= 0:
        return
    yield Finding(
        title=f"ops use {main.intra} threads, but the job can run on only {allowed} of {online} "
        "CPUs",
        evidence=f"the job is bound to CPU {format_cpulist(main.cpus)}; its threads were ready but "
        f"had no CPU for {main.waited:.0%} of the CPU time they needed",
        fix=f"{advise_intra_op(main.framework, allowed)}, or give the container more CPUs",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", default_threads(allowed, main.inter)),),
        try_next=("threads",),
    )
