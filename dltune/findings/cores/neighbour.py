"""Others on the job's cores: processes, or machines on the same hypervisor."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Observation, Process
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

SHARE = 0.05  # of all cores


@rule(
    "neighbour",
    "cores",
    summary="Others on the job's cores: processes, or machines on the same hypervisor.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what the others had of the job's cores, at most what the job waited for."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None:
        return
    host, cores = observation.host, observation.cores
    share = _share(observation, main)
    if share >= SHARE:
        names = ", ".join(
            f"{_short(one.command)} (pid {one.pid}, {one.cpu:.2f} cores)" for one in host.neighbours
        )
        yield Finding(
            cause="neighbour",
            title=f"other processes have {host.others:.1f} of the job's {cores} CPUs",
            evidence=f"{names or 'many small ones, or such as cannot be seen from here'}; the job's threads "
            "were ready without a CPU for "
            f"{main.waited:.0%} of what they wanted",
            fix="end them, let them run elsewhere, or keep them to CPUs of their own (taskset)",
            share=share,
            gain=Gain(0.0, share),
            confidence="measured",
        )
    stolen = host.stolen / host.online
    if stolen >= SHARE:
        yield Finding(
            cause="neighbour",
            title=f"the hypervisor gives {stolen:.0%} of this machine's CPU time to other machines",
            evidence=f"steal time, {host.stolen:.2f} of {host.online} CPUs in {observation.seconds:.0f} s",
            fix="a machine with CPUs of its own (dedicated, not shared), or another hour",
            share=stolen,
            gain=Gain(0.0, stolen),
            confidence="measured",
        )


def kept_waiting(observation: Observation) -> float:
    """The share of the time that the job waited for CPUs which other processes had; 0 where these
    are no finding."""
    main = observation.main
    return main.waited if main and _share(observation, main) >= SHARE else 0.0


def _share(observation: Observation, main: Process) -> float:
    """What others had of the job's cores, at most what it waited for, where that is known."""
    waited = main.waited if main.queued is not None else 1.0
    return min(observation.host.others / observation.cores, waited)


def _short(command: str) -> str:
    return command if len(command) <= 60 else command[:57] + "..."
