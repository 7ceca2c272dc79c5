"""Several ranks of one job on a node: which of them this is, and its part of the node's cores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from dltune.documents.machine import Machine
from dltune.errors import UsageError
from dltune.machine import cpulist
from dltune.machine.topology import Survey

# what launchers tell each rank: its number among the node's ranks, and how many these are
VARIABLES = (
    ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # Intel MPI, MPICH
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun
)


@dataclass(frozen=True)
class LocalRank:
    """`rank` of `size` ranks on this node; `variables`: where that was read."""

    rank: int
    size: int
    variables: tuple[str, ...]


def local_rank(environ: Mapping[str, str]) -> LocalRank | None:
    """This process's rank on its node; None when no launcher has set one.

    A launcher may start another (`srun -n1 mpirun -n 4`): a size of 1 gives way to a larger one.
    Raises UsageError when a rank lacks its size, is no number or out of range, or when two
    launchers disagree.
    """
    found = [
        _pair(environ, rank, size)
        for rank, size in VARIABLES
        if environ.get(rank) or environ.get(size)
    ]
    if slurm := _slurm(environ):
        found.append(slurm)
    found = [one for one in found if one.size > 1] or found
    if not found:
        return None
    first = found[0]
    for other in found[1:]:
        if (other.rank, other.size) != (first.rank, first.size):
            raise UsageError(
                f"the environment names two ranks: {_told(first, environ)} "
                f"but {_told(other, environ)}",
                remedy="unset the variables of the launcher that did not start this process",
            )
    return first


def share(machine: Machine, rank: LocalRank) -> Machine:
    """That rank's part of the machine, so that the ranks' parts together are the machine.

    Neighbouring cores in tile order, with as many borders between ranks on borders of tiles as
    can be while sizes differ by at most one. More ranks than cores share cores in turn. Quota and
    memory are divided evenly.
    """
    order = [core for tile in machine.tiles for core in tile]
    if rank.size >= len(order):
        mine = [order[rank.rank % len(order)]]
    else:
        borders = _borders([len(tile) for tile in machine.tiles], rank.size)
        mine = order[borders[rank.rank] : borders[rank.rank + 1]]
    return msgspec.structs.replace(
        machine,
        cores=tuple(machine.cores[core] for core in mine),
        quota=None if machine.quota is None else machine.quota / rank.size,
        memory=None if machine.memory is None else machine.memory // rank.size,
    )


def binding(survey: Survey, rank: LocalRank) -> str | None:
    """What to tell when a launcher seems to have bound this rank already; None when it has not.

    Open MPI binds two ranks to a core each, more to sockets, unless told otherwise; what `share`
    then divides is no longer the node.
    """
    node = survey.cpuset or frozenset().union(*survey.host_cores)
    if rank.size == 1 or survey.mask >= node:
        return None
    return (
        f"rank {rank.rank} of {rank.size} may only use CPU {cpulist.show(survey.mask)} of the "
        f"node's {cpulist.show(node)}, and takes its part of these: if the launcher bound it, "
        "start the job with binding off (mpirun --bind-to none, srun --cpu-bind=none)"
    )


def _borders(tiles: list[int], parts: int) -> list[int]:
    """Where each part begins, and the end: most borders on tile edges, then earliest large parts.

    `best[k]` after i parts, k of them large: the most borders on edges, and the borders so far.
    """
    edges, total = {0}, 0
    for size in tiles:
        total += size
        edges.add(total)
    small, large = divmod(total, parts)
    best: dict[int, tuple[int, list[int]]] = {0: (0, [0])}
    for _ in range(parts):
        following: dict[int, tuple[int, list[int]]] = {}
        for count, (score, borders) in best.items():
            for extra in (1, 0):
                if count + extra <= large:
                    border = borders[-1] + small + extra
                    candidate = (score + (border in edges), [*borders, border])
                    known = following.get(count + extra)
                    if known is None or candidate[0] > known[0]:
                        following[count + extra] = candidate
        best = following
    return best[large][1]


def _pair(environ: Mapping[str, str], rank: str, size: str) -> LocalRank:
    for name, other in ((rank, size), (size, rank)):
        if not environ.get(name):
            raise UsageError(
                f"{other} is set but {name} is not, so this rank's part of the node is not known",
                remedy=f"set {name}, or unset {other}",
            )
    return _checked(environ, rank, _number(environ, rank), _number(environ, size), (rank, size))


def _slurm(environ: Mapping[str, str]) -> LocalRank | None:
    """The task of a Slurm step. A batch script has SLURM_LOCALID too, but is alone on its node."""
    in_step = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_STEP_ID")
    if not environ.get("SLURM_LOCALID") or not in_step:
        return None
    rank = _number(environ, "SLURM_LOCALID")
    if tasks := environ.get("SLURM_STEP_TASKS_PER_NODE"):
        counts = _tasks(tasks)
        node = _number(environ, "SLURM_NODEID") if environ.get("SLURM_NODEID") else 0
        if len(set(counts)) > 1 and not environ.get("SLURM_NODEID"):
            raise UsageError(
                f"SLURM_STEP_TASKS_PER_NODE={tasks} differs between nodes and SLURM_NODEID, "
                "which tells this one, is not set"
            )
        if node >= len(counts):
            raise UsageError(f"SLURM_NODEID={node} is beyond SLURM_STEP_TASKS_PER_NODE={tasks}")
        names = ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
        return _checked(environ, names[0], rank, counts[node], names)
    if environ.get("SLURM_NTASKS_PER_NODE"):
        names = ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")
        return _checked(environ, names[0], rank, _number(environ, names[1]), names)
    raise UsageError(
        "SLURM_LOCALID is set but neither SLURM_STEP_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is",
        remedy="start the job with srun --ntasks-per-node=N, or unset SLURM_LOCALID",
    )


def _tasks(text: str) -> list[int]:
    """Tasks of each node: "2(x3),1" is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not match:
            raise UsageError(f"SLURM_STEP_TASKS_PER_NODE={text} is not understood")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise UsageError(f"{name}={environ[name]!r} is not a number") from None


def _checked(
    environ: Mapping[str, str], name: str, rank: int, size: int, variables: tuple[str, ...]
) -> LocalRank:
    found = LocalRank(rank, size, variables)
    if not 0 <= rank < size:
        raise UsageError(
            f"{name}={rank} is not one of {size} ranks on this node ({_told(found, environ)})"
        )
    return found


def _told(rank: LocalRank, environ: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={environ[name]}" for name in rank.variables)
