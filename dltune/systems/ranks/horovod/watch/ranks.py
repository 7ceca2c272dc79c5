"""A process as a rank of a job: its number, its settings and versions, the cores it can use."""

from __future__ import annotations

import functools
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.rank_layout import local_rank, world
from dltune.system.proc.process import Mapping as Mapped
from dltune.systems.ranks.allreduce.section import Controller
from dltune.systems.ranks.horovod.timeline.summary import CYCLE_TIME
from dltune.systems.ranks.horovod.watch import torch_library
from dltune.systems.ranks.horovod.watch.horovod_library import Library

# variables that a launcher sets for each rank separately, and that must not be passed on
_LAUNCHERS = re.compile(
    r"HOROVOD_(HOSTNAME|RANK|SIZE|LOCAL_|CROSS_|GLOO_RENDEZVOUS)"
    r"|OMPI_MCA_(orte_|ess|pmix|shmem_RUNTIME|initial_wdir|rmaps_base_oversubscribe|mpi_oversub)"
    r"|.*(SECRET|KEY)"
)
# the variables that make a process a rank of a job
NUMBERS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "RANK")
_TOLD = ("HOROVOD_", "OMPI_MCA_", "MPIR_CVAR_")
_TOLD_PYTORCH = ("OMP_", "GOMP_", "KMP_", "GLOO_", "TORCH_")
_MPI_VERSION = re.compile(r"\(?(Open MPI|MPICH|Intel\(R\) MPI)\b\D*(\d[\w.]*)")


@dataclass(frozen=True)
class Identity:
    """The fields of `schemas.horovod.Rank`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    controller: Controller | None
    mpi: str | None
    settings: dict[str, str]
    library: Library


def identify(
    pid: int, environ: Mapping[str, str], mapped: Sequence[Mapped], library: Library
) -> Identity:
    """Raises UsageError when the environment names two ranks, or half of one."""
    torch = not library.is_horovod
    launched = torch_library.own(environ) if torch else environ
    try:
        where, here = world(launched), local_rank(launched)
    except UsageError as error:
        raise UsageError(f"pid {pid}: {error}", remedy=error.remedy) from None
    libmpi = next((m.path for m in mapped if re.search(r"/libmpi(ch)?\.so[^/]*$", m.path)), None)
    return Identity(
        rank=where.rank,
        size=where.size,
        local_rank=here.rank if here else 0,
        local_size=here.size if here else 1,
        host=socket.gethostname(),
        # of what PyTorch's wheels are built with, gloo is for CPUs
        controller="gloo" if torch else _controller(environ, libmpi),
        mpi=_mpi_version(libmpi) if libmpi else None,
        settings=settings(environ, _TOLD_PYTORCH if torch else _TOLD),
        library=library,
    )


def settings(environ: Mapping[str, str], told: tuple[str, ...] = _TOLD) -> dict[str, str]:
    """Return the settings of Horovod and MPI, or of others by the beginnings of their variables,
    without the variables that each launcher sets for each rank."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(told) and not _LAUNCHERS.match(name)
    }


def cycle_time(told: Mapping[str, str]) -> float:
    """Seconds of HOROVOD_CYCLE_TIME, which is in milliseconds."""
    try:
        return max(0.0, float(told["HOROVOD_CYCLE_TIME"]) * 1e-3)
    except (KeyError, ValueError):
        return CYCLE_TIME


@functools.cache
def node() -> frozenset[int]:
    """Return the CPUs that this control group can use: a launcher's binding does not change
    these."""
    from dltune.system.topology import survey

    found = survey()
    return found.cpuset or frozenset().union(*found.host_cores)


def cores() -> int:
    """Physical cores of the node, within the control group's."""
    from dltune.system.topology import survey

    allowed = node()
    return sum(1 for core in survey().host_cores if core & allowed)


def _controller(environ: Mapping[str, str], libmpi: str | None) -> Controller:
    told = environ.get("HOROVOD_CONTROLLER", "").lower()
    # Horovod's own choice: MPI where it was built with it
    return "mpi" if told == "mpi" or (libmpi and told != "gloo") else "gloo"


@functools.lru_cache(maxsize=8)
def _mpi_version(libmpi: str) -> str | None:
    """Return the version line of the launcher that was installed with the library, such as "Open
    MPI 4.1.8"."""
    launcher = Path(libmpi).parent.parent / "bin" / "mpirun"
    try:
        told = subprocess.run(
            [str(launcher), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = _MPI_VERSION.search(told)
    return f"{found[1]} {found[2]}" if found else None
