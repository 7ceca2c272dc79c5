"""Which CPUs the job is confined to."""

from __future__ import annotations

from dltune.planners.settings import launcher
from dltune.planners.settings.setting import Circumstances, Means, Setting

BY_RANK, PER_CORE, NUMA_NODE = "by-rank", "one-per-core", "numa-node"


def _ways(here: Circumstances) -> dict[str, Means]:
    """What can be done here, by value."""
    if launcher.starts_ranks(here.command):
        return {BY_RANK: Means(shared=True)}
    cores = here.machine.cores
    ways = {}
    if any(len(core.cpus) > 1 for core in cores):
        ways[PER_CORE] = Means(cpus=tuple(core.cpus[0] for core in cores))
    near = [core for core in cores if core.numa == cores[0].numa]
    if len(near) < len(cores):
        ways[NUMA_NODE] = Means(cpus=tuple(cpu for core in near for cpu in core.cpus))
    return ways


def _unfit(here: Circumstances) -> str | None:
    if _ways(here):
        return None
    return (
        "there is no second hardware thread of a core and no second NUMA node to keep off, and the "
        "command starts no ranks to keep apart"
    )


AFFINITY = Setting(
    name="affinity",
    what="which CPUs the job may use: each rank its own cores, one hardware thread of each core, "
    "or one NUMA node; TensorFlow's default thread counts follow from it",
    kind="rounding",
    source="TensorFlow's guide to performance on CPUs (numactl); Horovod's guide to binding ranks",
    ways=_ways,
    unfit=_unfit,
    joins=("threads", "ranks"),
)
