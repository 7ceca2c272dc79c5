"""Settings of the runtime: thread pools, CPU affinity, OpenMP library and memory allocator."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.frameworks.tensorflow import runtime
from dltune.plan.settings import setting
from dltune.plan.settings.setting import Circumstances, Means, Setting
from dltune.schemas.plan import Uniform
from dltune.system import memory
from dltune.system.memory import preloads

# Threads of a job: TensorFlow's own pools, and the CPUs that the job is confined to

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
    return tuple(dict.fromkeys(pair.text for pair in pairs))


def _default(here: Circumstances) -> str:
    return runtime.default_threads(here.machine).text


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
    """Return the means that are available here, by value."""
    if setting.starts_ranks(here.command):
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


# The OpenMP runtime that PyTorch's ops run on

_INTELS = "libiomp5.so"
_RUNTIME = re.compile(r"lib[ig]?omp(\b|\d)")  # Intel's, GNU's, LLVM's
# Intel's runtime looks for 200 ms, GNU's 300,000 times: about 3 ms
_BRIEFLY = {"KMP_BLOCKTIME": "1", "GOMP_SPINCOUNT": "100000"}


def _prefixes(here: Circumstances) -> Iterator[Path]:
    """Yield the prefixes of environments in which the job can run, and of dltune's own."""
    program = here.command[0] if here.command else "python"
    if found := shutil.which(program, path=here.environment.get("PATH")):
        yield Path(found).parent.parent
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := here.environment.get(name):
            yield Path(prefix)
    yield Path(sys.prefix)


def _library(here: Circumstances) -> Path | None:
    paths = (prefix / "lib" / _INTELS for prefix in _prefixes(here))
    return next((path.resolve() for path in paths if path.is_file()), None)


def _runtimes(here: Circumstances) -> dict[str, Means]:
    library = _library(here)
    return {"intel": Means(preload=(library,))} if library else {}


def _without(here: Circumstances) -> str | None:
    if _library(here):
        return None
    return f"{_INTELS} is not installed: run `pip install intel-openmp` in the job's environment"


def _preloaded(here: Circumstances) -> str | None:
    if any(_RUNTIME.match(Path(library).name) for library in preloads(here.environment)):
        return f"LD_PRELOAD={here.environment['LD_PRELOAD']}"
    return None


OPENMP = Setting(
    name="openmp",
    order=80,
    what="Replace GNU's OpenMP runtime, which comes with PyTorch, with Intel's.",
    helps="Steps of many short ops, for which starting and joining threads takes long.",
    meanings={"intel": "load libiomp5.so (pip install intel-openmp)"},
    kind="rounding",
    source="PyTorch's performance tuning guide, Intel OpenMP runtime library",
    ways=_runtimes,
    unfit=_without,
    users=_preloaded,
    joins=("openmp_wait", "threads"),
    framework="pytorch",
)

OPENMP_WAIT = Setting(
    name="openmp_wait",
    order=90,
    what="Set how long OpenMP's threads wait for the next op before they sleep. The default is "
    "about 3 ms in GNU's runtime and 200 ms in Intel's.",
    helps="Jobs that share their cores with data workers, other ranks or other programs.",
    meanings={"1ms": "sleep after about a millisecond", "passive": "sleep at once"},
    kind="exact",
    source="the OpenMP specification, OMP_WAIT_POLICY; GNU libgomp's manual, GOMP_SPINCOUNT; "
    "PyTorch's performance tuning guide, KMP_BLOCKTIME",
    # and not "active": a job that stands while others have their turn would take a core from them
    ways=lambda _: {
        "1ms": Means(environment=_BRIEFLY),
        "passive": Means(environment={"OMP_WAIT_POLICY": "PASSIVE"}),
    },
    joins=("threads", "openmp"),
    framework="pytorch",
)


# The source of TensorFlow's memory, and whether it is kept between steps. Tensors are allocated and
# freed in every step. glibc maps large tensors anew each time, and each first touch of a page is a
# fault. TensorFlow sets M_TRIM_THRESHOLD in ops that call Python, which ends glibc's own adaption
# (tensorflow/core/kernels/data/generator_dataset_op.cc).

# bytes; larger than any tensor that comes and goes, and more than is ever free at a time. Of other
# arenas than the first one glibc gives back whatever is free in whole, and none holds 64 MiB
_KEEP = (
    "glibc.malloc.mmap_threshold=1073741824",
    "glibc.malloc.trim_threshold=4294967296",
    "glibc.malloc.arena_max=1",
)
_HUGE = "glibc.malloc.hugetlb=1"
_TUNABLES = {
    "glibc-keep-thp": (*_KEEP, _HUGE),
    "glibc-keep": _KEEP,
    "glibc-thp": (_HUGE,),
}
# glibc that knows the tunable (its NEWS)
_HUGE_SINCE = (2, 35)
# left to themselves these give memory back after a while, which costs more faults than glibc
_NO_DECAY = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
# the library, and the variables that it reads: mimalloc's before and since 2.1
_PRELOADED: dict[str, tuple[str, dict[str, str]]] = {
    "tcmalloc": ("tcmalloc", {}),
    "jemalloc-thp": ("jemalloc", {"MALLOC_CONF": f"thp:always,metadata_thp:auto,{_NO_DECAY}"}),
    "jemalloc": ("jemalloc", {"MALLOC_CONF": _NO_DECAY}),
    "mimalloc": ("mimalloc", {"MIMALLOC_PAGE_RESET": "0", "MIMALLOC_PURGE_DELAY": "-1"}),
}
VALUES = (*_TUNABLES, *_PRELOADED)
# likeliest gain first; of each line the first that can be had is worth trying
_TRIED = (
    ("tcmalloc",),
    ("glibc-keep-thp", "glibc-keep"),
    ("jemalloc-thp", "jemalloc"),
    ("mimalloc",),
)


def _allocator_values(here: Circumstances) -> tuple[str, ...]:
    found = (next((v for v in line if _why_not(v, here) is None), None) for line in _TRIED)
    return tuple(value for value in found if value)


def _why_not(value: str, here: Circumstances) -> str | None:
    """Why a value does nothing here."""
    if value.endswith("-thp") and memory.huge_page_mode() not in ("madvise", "always"):
        return "this system provides no transparent huge pages"
    if value in _PRELOADED:
        name, _ = _PRELOADED[value]
        if memory.find_allocator(name, here.environment) is None:
            return f"{' or '.join(memory.SONAMES[name])} is not installed"
        return None
    version = memory.glibc()
    if version is None:
        return "the C library is not glibc"
    if _HUGE in _TUNABLES[value] and version < _HUGE_SINCE:
        return f"glibc {version[0]}.{version[1]} is too old for huge pages; 2.35 is needed"
    return None


def _allocator_means(value: str, here: Circumstances) -> Means:
    if value not in VALUES:
        raise UsageError(
            f"allocator={value}: unknown value", remedy=f"use one of {', '.join(VALUES)}"
        )
    if why := _why_not(value, here):
        package = memory.PACKAGES.get(_PRELOADED[value][0]) if value in _PRELOADED else None
        raise UsageError(
            f"allocator={value} cannot be used here: {why}",
            remedy=f"install {package}" if package else None,
        )
    if value in _TUNABLES:
        return Means(joined={"GLIBC_TUNABLES": _TUNABLES[value]})
    name, variables = _PRELOADED[value]
    library = memory.find_allocator(name, here.environment)
    assert library is not None  # by _why_not
    return Means(preload=(library,), environment=variables)


def _allocator_users(here: Circumstances) -> str | None:
    if library := memory.preloaded(here.environment):
        return f"{library} in LD_PRELOAD"
    named = [name for name in here.environment if name.startswith("MALLOC_")]
    return f"{named[0]}={here.environment[named[0]]}" if named else None


def _untried(here: Circumstances) -> dict[str, str]:
    found = {line[-1]: _why_not(line[-1], here) for line in _TRIED}
    return {value: why for value, why in found.items() if why is not None}


ALLOCATOR = Setting(
    name="allocator",
    order=70,
    what="Choose the memory allocator, whether it keeps freed memory, and whether it uses huge "
    "pages.",
    helps="Jobs with many page faults, which allocate and free large tensors in every step.",
    meanings={
        "glibc-keep-thp": "glibc keeps freed memory and uses transparent huge pages",
        "glibc-keep": "glibc keeps freed memory instead of returning it to the system",
        "glibc-thp": "glibc uses transparent huge pages",
        "tcmalloc": "tcmalloc, if installed",
        "jemalloc-thp": "jemalloc, if installed; keeps freed memory and uses huge pages",
        "jemalloc": "jemalloc, if installed; keeps freed memory",
        "mimalloc": "mimalloc, if installed; keeps freed memory",
    },
    kind="exact",
    source="glibc's manual (malloc tunables); TensorFlow's guide to performance on CPUs (tcmalloc, "
    "jemalloc)",
    offers=_allocator_values,
    reads=_allocator_means,
    joins=("onednn_primitives",),
    users=_allocator_users,
    untried=_untried,
)
