"""This process's rank among all ranks of its job, as launchers tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dltune.errors import UsageError

# rank, size; as the local ones in `ranks`
VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # Intel MPI, MPICH
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


@dataclass(frozen=True)
class World:
    """`rank` of `size` ranks of the job."""

    rank: int
    size: int


def world(environ: Mapping[str, str]) -> World:
    """This process's rank; rank 0 of 1 when no launcher has set one.

    A launcher may start another: a size of 1 gives way to a larger one. Raises UsageError when a
    rank lacks its size, is no number or out of range, or when two launchers disagree.
    """
    found: dict[World, str] = {}
    for rank, size in VARIABLES:
        if not environ.get(rank) or (rank.startswith("SLURM") and not environ.get(size)):
            continue
        told = f"{rank}={environ[rank]}, {size}={environ.get(size, '')}"
        try:
            one = World(int(environ[rank]), int(environ[size]))
        except (KeyError, ValueError):
            raise UsageError(
                f"this process's rank is not known from {told}", remedy=f"set {rank} and {size}"
            ) from None
        if not 0 <= one.rank < one.size:
            raise UsageError(f"{told}: there is no such rank")
        found.setdefault(one, told)
    larger = [one for one in found if one.size > 1] or list(found)
    if len(larger) > 1:
        raise UsageError(
            f"the environment names two ranks: {found[larger[0]]} but {found[larger[1]]}",
            remedy="unset the variables of the launcher that did not start this process",
        )
    return larger[0] if larger else World(0, 1)
