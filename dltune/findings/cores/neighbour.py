"""Other processes, or other virtual machines, that use the job's cores."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.cores.thread_limits import default_threads, thread_limit
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.findings.thread_settings import advise_intra_op
from dltune.schemas.diagnosis import Finding, Gain, Observation, Process
from dltune.schemas.settings import Choice

SHARE = 0.05  # of the cores


@rule(
    "neighbour",
    "cores",
    summary="Other processes, or other virtual machines on the same host, use the job's CPUs.",
    fix="Stop the other processes or bind them to other CPUs (taskset), or move the job to a "
    "dedicated machine.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find other processes and stolen time. The cost is the share of the job's cores that they
    used, at most the share for which the job waited."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None:
        return
    host, cores = observation.host, observation.cores
    share = _share(observation, main)
    if share >= SHARE:
        names = ", ".join(
            f"{_short(other.command)} (pid {other.pid}, {other.cpu:.2f} cores)"
            for other in host.neighbours
        )
        which = (
            f"the largest of them: {names}"
            if names
            else "they are small, or not visible from inside this container"
        )
        # threads that wait for each other at the end of each op lose the most next to others
        free = _fewer_threads(observation, main)
        advice = (
            f"{advise_intra_op(main.framework, free)}, for the CPUs that are free"
            if free
            else "give the job fewer threads"
        )
        yield Finding(
            title=f"other processes use {host.others:.1f} of the job's {cores} CPUs",
            evidence=f"{which}; the job's threads were ready but had no CPU for {main.waited:.0%} "
            "of the CPU time they needed",
            fix="stop these processes, bind them to other CPUs (taskset), or run them on another "
            f"machine; if they must stay, {advice}",
            share=share,
            gain=Gain(0.0, share),
            confidence="measured",
            apply=(Choice("threads", default_threads(free, main.inter)),) if free else (),
            try_next=("threads",),
        )
    stolen = host.stolen / host.online
    if stolen >= SHARE:
        yield Finding(
            title=f"the hypervisor gives {stolen:.0%} of this machine's CPU time to other virtual "
            "machines",
            evidence=f"steal time was {host.stolen:.2f} of {host.online} CPUs during "
            f"{observation.seconds:.0f} s",
            fix="use a machine with dedicated CPUs, or run the job at another time",
            share=stolen,
            gain=Gain(0.0, stolen),
            confidence="measured",
        )


def neighbour_wait(observation: Observation) -> float:
    """Return the share of the time for which the job waited for CPUs that other processes used; 0
    if these processes are no finding."""
    main = observation.main
    return main.waited if main and _share(observation, main) >= SHARE else 0.0


def _lost_cpus(observation: Observation) -> float:
    """Return how many of the CPUs due to the job other processes use. A CPU beyond the quota is no
    loss."""
    return max(0.0, observation.host.others - (observation.cores - _due_cpus(observation)))


def _due_cpus(observation: Observation) -> float:
    return min(observation.cores, observation.host.quota or observation.cores)


def _fewer_threads(observation: Observation, main: Process) -> int | None:
    """Return the number of CPUs that other processes leave free if ops use more threads; None where
    all CPUs are about free, because other rules decide about threads there."""
    limit = thread_limit(observation)
    free = max(1, round(limit - _lost_cpus(observation)))
    return free if free < limit and (main.intra or 0) > free else None


def _share(observation: Observation, main: Process) -> float:
    """Return the share of the job's CPU time that other processes took: at most the share for
    which it waited, if that is known."""
    waited = main.waited if main.queued is not None else 1.0
    return min(_lost_cpus(observation) / _due_cpus(observation), waited)


def _short(command: str) -> str:
    return command if len(command) <= 60 else command[:57] + "..."
