"""The ranks of a job on this node, and each one's part of its cores."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.job import messages
from dltune.schemas.machine import Machine
from dltune.system.proc import stat
from dltune.system.ranks import Rank, local_rank, share


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

    def answer(self, python: messages.Python) -> dict[str, object]:
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
            return share(self.machine, rank)
        return self.machine.of_cores(self._planned[rank.rank])
