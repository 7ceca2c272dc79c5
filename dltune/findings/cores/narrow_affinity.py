"""A job that may run on fewer cores than there are."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.seen import Seen
from dltune.machine import cpulist

# of the cores that it has, below which the job would not use more
WORKS = 0.7


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what the missing cores would do, if they did as much as those that it has."""
    observation = seen.observation
    main = observation.main if observation else None
    if observation is None or main is None or not main.cpus:
        return
    have, there = len(main.cpus), len(observation.host.cpus)
    if have >= there or main.cpu < WORKS * have:
        return
    share = 1 - have / there
    yield Finding(
        "narrow-affinity",
        f"the job may run on {have} of {there} CPUs",
        f"pid {main.pid} is kept to CPU {cpulist.show(main.cpus)}, of "
        f"{cpulist.show(observation.host.cpus)} that it could have; its threads ran on "
        f"{main.cpu:.2f} cores",
        "start it without taskset, numactl, or the launcher's binding (mpirun --bind-to none, "
        "srun --cpu-bind=none)",
        share=share,
        gain=Gain(0.0, share),
        sure="modelled",
    )
