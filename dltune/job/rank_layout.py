"""Ranks of one job: their numbers as launchers set them, their cores, and the port where they meet.

A rank has a number among all ranks and a number among the ranks of its node. Each rank gets its
part of the node's cores. A port that no other job uses lets several jobs run at once.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.job.ranks import free_address
from dltune.schemas.machine import Machine
from dltune.system.proc import stat

# This process's rank among all and among those on its node, and its part of the node's cores

# variables that launchers set for each rank: its number among all ranks, and their count
WORLD_VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # Intel MPI, MPICH
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("DLTUNE_RANK", "DLTUNE_RANKS"),  # a plan on parallelism
)
# the same among the node's ranks
LOCAL_VARIABLES = (
    ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # Intel MPI, MPICH
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun
    ("DLTUNE_LOCAL_RANK", "DLTUNE_LOCAL_RANKS"),  # a plan on parallelism
)


@dataclass(frozen=True)
class Rank:
    """`rank` of `size` ranks, all or those on this node; `variables`: where that was read."""

    rank: int
    size: int
    variables: tuple[str, ...] = field(default=(), compare=False)


def world(environ: Mapping[str, str]) -> Rank:
    """This process's rank among all ranks of its job; rank 0 of 1 when no launcher has set one.

    Raises UsageError when a rank lacks its size, is no number or out of range, or when two
    launchers disagree.
    """
    ranks = []
    for rank, size in WORLD_VARIABLES:
        if not environ.get(rank) or (rank.startswith("SLURM") and not environ.get(size)):
            continue
        assigned = f"{rank}={environ[rank]}, {size}={environ.get(size, '')}"
        try:
            one = Rank(int(environ[rank]), int(environ[size]), (rank, size))
        except (KeyError, ValueError):
            raise UsageError(
                f"{assigned}: this process's rank cannot be determined",
                remedy=f"set both {rank} and {size} to numbers",
            ) from None
        if not 0 <= one.rank < one.size:
            raise UsageError(
                f"{assigned}: the rank must be at least 0 and below the number of ranks",
                remedy=f"set {rank} to a number from 0 to {size} - 1",
            )
        ranks.append(one)
    return _agreed(ranks, environ) or Rank(0, 1)


def local_rank(environ: Mapping[str, str]) -> Rank | None:
    """This process's rank on its node; None when no launcher has set one.

    Raises UsageError as `world`.
    """
    ranks = [
        _pair(environ, rank, size)
        for rank, size in LOCAL_VARIABLES
        # Lightning's and DeepSpeed's launchers set LOCAL_RANK alone
        if environ.get(size) or (environ.get(rank) and rank != "LOCAL_RANK")
    ]
    if slurm := _slurm(environ):
        ranks.append(slurm)
    return _agreed(ranks, environ)


def is_rank(environ: Mapping[str, str]) -> bool:
    """Return True if this process is one of several ranks, as far as its launchers agree."""
    try:
        return world(environ).size > 1
    except UsageError:
        return True


def are_unheard(told: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether a rank, as its launcher has `told` it, has others on other nodes, and dltune, in its
    `own` environment, started the launcher of this node alone and does not hear of them."""
    return _has_ranks_elsewhere(told) and not is_rank(own)


def _has_ranks_elsewhere(environ: Mapping[str, str]) -> bool:
    try:
        local, where = local_rank(environ), world(environ)
    except UsageError:  # launchers disagree
        return True
    return local is not None and where.size > local.size


def rank_cores(machine: Machine, rank: Rank) -> Machine:
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
        machine.of_cores(mine),
        quota=None if machine.quota is None else machine.quota / rank.size,
        memory=None if machine.memory is None else machine.memory // rank.size,
    )


def _borders(tiles: list[int], parts: int) -> list[int]:
    """Where each part begins, and the end: most borders on tile edges, then earliest large parts.

    `best[k]` after i parts, k of them large: the most borders on edges, and the borders so far.
    """
    edges = set(itertools.accumulate(tiles, initial=0))
    small, large = divmod(sum(tiles), parts)
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


def _agreed(ranks: Sequence[Rank], environ: Mapping[str, str]) -> Rank | None:
    """Return the rank on which launchers agree. A launcher can start another (`srun -n1 mpirun
    -n 4`): a size of 1 gives way to a larger size, and Slurm, which starts others on each node and
    is started by none, to any (`srun -N 2 torchrun --nnodes 2`). Raises UsageError when two
    launchers disagree."""
    larger = [one for one in ranks if one.size > 1] or ranks
    larger = [one for one in larger if not one.variables[0].startswith("SLURM")] or larger
    for other in larger[1:]:
        if other != larger[0]:
            raise UsageError(
                f"the environment names two different ranks: {_assignments(larger[0], environ)} "
                f"and {_assignments(other, environ)}",
                remedy="unset the variables of the launcher that did not start this process",
            )
    return larger[0] if larger else None


def _pair(environ: Mapping[str, str], rank: str, size: str) -> Rank:
    for name, other in ((rank, size), (size, rank)):
        if not environ.get(name):
            raise UsageError(
                f"{other} is set but {name} is not, so this rank's cores cannot be determined",
                remedy=f"set {name}, or unset {other}",
            )
    return _local(environ, (rank, size), _number(environ, size))


def _slurm(environ: Mapping[str, str]) -> Rank | None:
    """The task of a Slurm step. A batch script has SLURM_LOCALID too, but is alone on its node."""
    in_step = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_STEP_ID")
    if not environ.get("SLURM_LOCALID") or not in_step:
        return None
    if tasks := environ.get("SLURM_STEP_TASKS_PER_NODE"):
        counts = _tasks(tasks)
        node = _number(environ, "SLURM_NODEID") if environ.get("SLURM_NODEID") else 0
        if len(set(counts)) > 1 and not environ.get("SLURM_NODEID"):
            raise UsageError(
                f"SLURM_STEP_TASKS_PER_NODE={tasks} differs between nodes, and SLURM_NODEID is "
                "not set",
                remedy="set SLURM_NODEID, or start the job with srun --ntasks-per-node=N",
            )
        if node >= len(counts):
            raise UsageError(
                f"SLURM_NODEID={node}: SLURM_STEP_TASKS_PER_NODE={tasks} has only {len(counts)} "
                "nodes",
                remedy="unset the variables of the Slurm step that did not start this process",
            )
        return _local(environ, ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"), counts[node])
    if environ.get("SLURM_NTASKS_PER_NODE"):
        size = _number(environ, "SLURM_NTASKS_PER_NODE")
        return _local(environ, ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"), size)
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
            raise UsageError(
                f"SLURM_STEP_TASKS_PER_NODE={text}: not a list of counts such as 2(x3),1",
                remedy="unset it, and set SLURM_NTASKS_PER_NODE",
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise UsageError(
            f"{name}={environ[name]!r} is not a number",
            remedy=f"set {name} to a number, or unset it",
        ) from None


def _local(environ: Mapping[str, str], variables: tuple[str, str], size: int) -> Rank:
    rank = Rank(_number(environ, variables[0]), size, variables)
    if not 0 <= rank.rank < size:
        raise UsageError(
            f"{variables[0]}={rank.rank}: must be at least 0 and below the {size} ranks on this "
            f"node ({_assignments(rank, environ)})",
            remedy="unset the variables of the launcher that did not start this process",
        )
    return rank


def _assignments(rank: Rank, environ: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={environ[name]}" for name in rank.variables)


# Where the ranks of a job meet: at a port that no other job has

# torchrun's option, accelerate's, and those of many a script
_PORTS = ("--master-port", "--main-process-port")
_ENDPOINT, _BACKEND = "--rdzv-endpoint", "--rdzv-backend"
_NODES = ("--nnodes", "--num-machines")
_ONE_NODE = ("1", "1:1")
# torchrun, after `python -m`
TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
# as in `env MASTER_PORT=29500 python train.py`
_VARIABLE = re.compile(r"\bMASTER_PORT=[1-9]\d*")


def with_own_port(
    command: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command with a free port in place of the one that it names, and the variables with those
    that name the port to launchers and scripts that take it from them. `variables` stand beside
    this process's own. Ranks on several nodes, and a rank itself, meet where they were told."""
    environment = {**os.environ, **variables}
    nodes = [*_values(command, *_NODES), environment.get("PET_NNODES", "1")]
    if is_rank(environment) or any(number not in _ONE_NODE for number in nodes):
        return list(command), dict(variables)
    address = free_address()
    port = address.rpartition(":")[2]
    backends = [*_values(command, _BACKEND), environment.get("PET_RDZV_BACKEND", "")]
    elsewhere = any("etcd" in backend for backend in backends)
    words = [_VARIABLE.sub(f"MASTER_PORT={port}", word) for word in command]
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals:
            words[place] = f"{name}={_moved(name, value, port, elsewhere)}"
        elif place + 1 < len(words):
            words[place + 1] = _moved(name, words[place + 1], port, elsewhere)
    told = {"MASTER_PORT": port}
    if not _is_torchrun(command):
        told["PET_MASTER_PORT"] = port  # of one that a script starts, unless it says another
    elif not elsewhere:
        told["PET_RDZV_ENDPOINT"] = address
    return words, {**variables, **told}


def _moved(name: str, value: str, port: str, elsewhere: bool) -> str:
    """An option's value; zero is any port already. `elsewhere`: a server knows where ranks meet."""
    if _option(name) in _PORTS and value.isdecimal() and int(value):
        return port
    if _option(name) == _ENDPOINT and value and not elsewhere:
        host, colon, number = value.rpartition(":")
        if not (colon and number.isdecimal()):
            return f"{value}:{port}"
        return f"{host}:{port}" if int(number) else value
    return value


def _values(command: Sequence[str], *options: str) -> list[str]:
    return [
        word.partition("=")[2] or after
        for word, after in itertools.pairwise([*command, ""])
        if _option(word) in options
    ]


def _option(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _is_torchrun(command: Sequence[str]) -> bool:
    named = bool(command) and Path(command[0]).name == "torchrun"
    return named or any(module in command for module in TORCHRUN)


# The ranks of a job on this node


class Shares:
    """Learns from each interpreter of a job, as it starts, whether it is one of several ranks.

    `planned`: the cores for each local rank's ops, as indices of the machine's cores; without, the
    cores are shared out evenly.
    """

    def __init__(self, machine: Machine, planned: Sequence[tuple[int, ...]] | None = None) -> None:
        self.machine = machine
        self._planned = planned
        self._parts: dict[int, tuple[Machine, int]] = {}

    def __bool__(self) -> bool:
        """Whether the job has ranks."""
        return bool(self._parts)

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """The reply that gives a rank its part of the cores; empty for a job without ranks.

        Raises UsageError when the launcher's variables contradict each other.
        """
        rank = local_rank(python.environment)
        if rank is None or rank.size == 1:
            return {}
        part = self._part(rank)
        self._parts[python.pid] = (part, rank.rank)
        return {"cpus": [cpu for core in part.cores for cpu in core.cpus]}

    def of(self, pid: int) -> tuple[Machine, int | None]:
        """The part of the machine that a process has, and its rank, also of one that a rank has
        forked; all of it and None without."""
        while self._parts and pid not in self._parts and (found := stat.of_process(pid)):
            pid = found.parent
        return self._parts.get(pid, (self.machine, None))

    def _part(self, rank: Rank) -> Machine:
        """Of a rank with planned cores those of its ops; its other threads have their own."""
        if self._planned is None:
            return rank_cores(self.machine, rank)
        return self.machine.of_cores(self._planned[rank.rank])
