"""The threads of a job: TensorFlow's own pools, and the CPUs that the job is confined to."""

from __future__ import annotations

import math
import re

from dltune.base.errors import UsageError
from dltune.frameworks.tensorflow import runtime
from dltune.plan.settings import launcher
from dltune.plan.settings.setting import Circumstances, Means, Setting
from dltune.schemas.plan import Uniform

_PAIR = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})")
BY_RANK, PER_CORE, NUMA_NODE = "by-rank", "one-per-core", "numa-node"
_VARIABLES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def _values(here: Circumstances) -> tuple[str, ...]:
    """The guide's recommendation; as many as a quota pays for; one thread, or half the cores, and
    one op at a time, as small ops want it; two ops at a time; all hardware threads; one thread an
    op; TensorFlow's default."""
    machine = here.machine
    cores, cpus = len(machine.cores), runtime.default_threads(machine).intra
    paid = min(cores, max(1, math.floor(machine.quota or cores)))
    pairs = [
        runtime.recommended_threads(machine),
        Uniform(paid, 1),
        Uniform(1, 1),
        Uniform(max(1, cores // 2), 1),
        Uniform(cores, 2),
        Uniform(max(1, cores // 2), 2),
        Uniform(cpus, 1),
        Uniform(1, cores),
        runtime.default_threads(machine),
    ]
    return tuple(dict.fromkeys(map(_told, pairs)))


def _default(here: Circumstances) -> str:
    return _told(runtime.default_threads(here.machine))


def _told(pair: Uniform) -> str:
    return f"{pair.intra}x{pair.inter}"


def _means(value: str, _: Circumstances) -> Means:
    pair = _PAIR.fullmatch(value)
    if pair is None:
        raise UsageError(
            f"threads={value} is not a number of intra-op and of inter-op threads",
            remedy="use two numbers, for example 4x2",
        )
    return Means(uniform=Uniform(int(pair[1]), int(pair[2])))


def _users(here: Circumstances) -> str | None:
    found = [f"{name}={here.environment[name]}" for name in _VARIABLES if name in here.environment]
    return " and ".join(found) or None


THREADS = Setting(
    name="threads",
    order=40,
    # one intra-op and one inter-op count for all ops
    what="Set the framework's thread pools: threads within an op, and ops at a time.",
    helps="Almost any job. The defaults use every CPU, which is too much for small ops, for "
    "hyper-threads or under a CPU quota.",
    meanings={
        "IxJ": "I threads within an op (intra-op) and J ops at a time (inter-op); J is 1 in PyTorch"
    },
    kind="rounding",
    source="TensorFlow's guide to performance on CPUs; section IV of Runtime Concurrency Control "
    "and Operation Scheduling (manual optimisation)",
    offers=_values,
    reads=_means,
    joins=("affinity",),
    default=_default,
    users=_users,
    # PyTorch's ops come one at a time
    framework_of=lambda value: None if value.endswith("x1") else "tensorflow",
)


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
        "the machine has one hardware thread per core and one NUMA node, and the command starts no "
        "ranks"
    )


AFFINITY = Setting(
    name="affinity",
    order=140,
    what="Confine the job to some CPUs. TensorFlow's default thread counts follow from them.",
    helps="Several ranks on one machine, hyper-threaded cores, or several NUMA nodes.",
    meanings={
        BY_RANK: "each rank uses its own part of the cores",
        PER_CORE: "one hardware thread of each core",
        NUMA_NODE: "the CPUs of one NUMA node",
    },
    kind="rounding",
    source="TensorFlow's guide to performance on CPUs (numactl); Horovod's guide to binding ranks",
    ways=_ways,
    unfit=_unfit,
    joins=("threads",),
)
