"""Jobs of several ranks: the number, the transport, the size of a transfer, the way of waiting."""

from __future__ import annotations

import re
import shutil

from dltune.base.errors import UsageError
from dltune.plan.settings import setting
from dltune.plan.settings.setting import Circumstances, Means, Setting


def _ranks_values(here: Circumstances) -> tuple[str, ...]:
    """Return the NUMA nodes, the sockets, and the powers of two up to one a core, as counts of
    ranks."""
    own = setting.ranks(here.command)
    cores = len(here.machine.cores)
    counts = [len({core.numa for core in here.machine.cores}), here.machine.sockets]
    counts += [1 << power for power in range(cores.bit_length())]
    return tuple(
        str(count)
        for count in dict.fromkeys(counts)
        if count != own and setting.divides(here.command, count)
    )


def _ranks_means(value: str, here: Circumstances) -> Means:
    if why := _ranks_unfit(here):
        raise UsageError(f"ranks={value} cannot be used here: {why}", remedy=None)
    if not (value.isdecimal() and 1 <= int(value) <= 4096):
        raise UsageError(
            f"ranks={value} is not a number of ranks", remedy="use a number from 1 to 4096"
        )
    if not setting.divides(here.command, int(value)):
        raise UsageError(
            f"ranks={value}: the {{batch:N}} in the command is not a multiple of it",
            remedy="use a number of ranks that divides the batch",
        )
    return Means(ranks=int(value), shared=True)


def _ranks_unfit(here: Circumstances) -> str | None:
    if setting.ranks(here.command) is None:
        return (
            "the command does not mark its number of ranks and its batch size, for example: "
            "horovodrun -np {ranks:2} python train.py --batch {batch:256}"
        )
    return None


def _controllers(_: Circumstances) -> tuple[str, ...]:
    return ("gloo", "mpi") if shutil.which("mpirun") else ("gloo",)


def _controller_means(value: str, here: Circumstances) -> Means:
    if why := _controller_unfit(here):
        raise UsageError(f"horovod={value} cannot be used here: {why}", remedy=None)
    if value not in ("gloo", "mpi"):
        raise UsageError(f"horovod={value}: unknown value", remedy="use gloo or mpi")
    if value not in _controllers(here):
        raise UsageError("horovod=mpi: mpirun is not on PATH", remedy="install an MPI")
    return Means(flags=(f"--{value}",))


def _controller_unfit(here: Circumstances) -> str | None:
    return None if setting.horovodrun(here.command) else "the job is not started by horovodrun"


def _controller_users(here: Circumstances) -> str | None:
    given = [flag for flag in ("--gloo", "--mpi", "--jsrun") if flag in here.command]
    return f"{given[0]} in the command" if given else None


def _yield_unfit(here: Circumstances) -> str | None:
    if setting.open_mpi(here.command):
        return None
    return "the job's ranks are not started by Open MPI"


def _yield_users(here: Circumstances) -> str | None:
    named = any("mpi_yield_when_idle" in word for word in here.command)
    return "mpi_yield_when_idle in the command" if named else None


# all that most models on CPUs have; DistributedDataParallel sums up 1 MiB and then by 25
_BUCKETS = ("1MiB", "5MiB", "100MiB")
_BUCKET = re.compile(r"([1-9]\d{0,4})MiB")


def _bucket_means(value: str, _: Circumstances) -> Means:
    if not _BUCKET.fullmatch(value):
        raise UsageError(
            f"ddp_bucket={value} is not a size in whole MiB", remedy="use a size such as 5MiB"
        )
    return Means(hooks={"ddp_bucket": value})


def _bucket_unfit(here: Circumstances) -> str | None:
    if setting.starts_ranks(here.command) or "WORLD_SIZE" in here.environment:
        return None
    return "the command starts no ranks, as torchrun, mpirun or srun would"


RANKS = Setting(
    name="ranks",
    order=220,
    what="Set how many ranks share the same batch, each on its part of the cores. Batch "
    "normalisation and dropout then see only one rank's part of the batch.",
    helps="Machines with many cores or several NUMA nodes, on which one process does not scale.",
    meanings={"N": "N ranks; the command marks the numbers to change as {ranks:2} and {batch:256}"},
    kind="lossy",
    source="Intel's guide to several TensorFlow processes a node; Horovod's guide",
    offers=_ranks_values,
    reads=_ranks_means,
    unfit=_ranks_unfit,
    joins=("threads", "affinity"),
    joined_by=("threads", "affinity"),
)

HOROVOD = Setting(
    name="horovod",
    order=150,
    what="Choose the library that Horovod's ranks communicate with.",
    helps="Horovod jobs that spend much of a step in communication.",
    meanings={"gloo": "use gloo", "mpi": "use MPI, if mpirun is installed"},
    kind="rounding",
    source="horovodrun --gloo, --mpi",
    offers=_controllers,
    reads=_controller_means,
    unfit=_controller_unfit,
    joins=("mpi_yield",),
    users=_controller_users,
)

MPI_YIELD = Setting(
    name="mpi_yield",
    order=160,
    what="Let ranks that wait in Open MPI give up their core.",
    helps="Jobs with more ranks or threads than cores.",
    meanings={"on": "yield the core while idle"},
    kind="exact",
    source="Open MPI's FAQ on running (mpi_yield_when_idle)",
    ways=lambda _: {"on": Means(environment={"OMPI_MCA_mpi_yield_when_idle": "1"})},
    unfit=_yield_unfit,
    joins=("horovod",),
    users=_yield_users,
)

DDP_BUCKET = Setting(
    name="ddp_bucket",
    order=170,
    what="Set how much of the gradients DistributedDataParallel sums up at a time, while the "
    "backward pass computes the rest.",
    helps="Ranks that wait for communication at the end of the backward pass.",
    meanings={"NMiB": "N MiB at a time, for example 5MiB (PyTorch's default: 25)"},
    kind="rounding",
    source="torch.nn.parallel.DistributedDataParallel(bucket_cap_mb=N)",
    offers=lambda _: _BUCKETS,
    reads=_bucket_means,
    unfit=_bucket_unfit,
    changes_graph=True,
    framework="pytorch",
)
