"""Orders for one process of a job under a plan, on the cores of this process."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from dltune.job.protocol import Orders
from dltune.schemas.machine import Machine
from dltune.schemas.plan import OpPlan, Threads, Uniform
from dltune.system.topology import cores_for


class Handling(enum.Enum):
    """Handling of an op that has an entry in the plan."""

    PLACED = enum.auto()  # runs at once, on the entry's threads and cores
    ADMITTED = enum.auto()  # waits until strategy 3 or 4 admits it, and chooses its cores
    SMALL = enum.auto()  # below the plan's `small` seconds: left to TensorFlow's own pool
    DROPPED = enum.auto()  # names missing cores: left to TensorFlow's own pool


@dataclass(frozen=True)
class Fitted:
    """A plan's thread section on the cores of a process.

    `uniform`: sizes of TensorFlow's own pools. `dropped`: keys of entries that name missing cores.
    """

    section: Threads
    machine: Machine
    uniform: Uniform
    dropped: tuple[str, ...]

    def handling(self, op: OpPlan) -> Handling:
        """Return the handling of the op of an entry of the plan."""
        if op.key in self.dropped:
            return Handling.DROPPED
        if op.serial < self.section.small:
            return Handling.SMALL
        # if the plan names cores, admission has nothing to choose
        return Handling.ADMITTED if self.section.corun and op.cores is None else Handling.PLACED

    def orders(self, version: int, targets: Collection[str], *, events: bool = False) -> Orders:
        """Return the plan as orders for the graphs with these signatures."""
        orders = Orders(
            version,
            targets=targets,
            events=events,
            hyperthreads=self.section.hyperthreads,
            small=self.section.small,
        )
        for op in self.section.ops:
            match self.handling(op):
                case Handling.ADMITTED:
                    orders.corun[op.key] = (op.serial, op.choice, op.candidates)
                case Handling.PLACED:
                    orders.ops[op.key] = (op.threads, self.cores(op))
        return orders

    def cores(self, op: OpPlan) -> tuple[int, ...]:
        """Return the cores of an op that is placed."""
        if op.cores is not None:
            return op.cores
        return cores_for(self.machine, min(op.threads, len(self.machine.cores)), op.placement)


def fit(section: Threads, machine: Machine) -> Fitted:
    """Fit a plan's thread section to `machine`, which can be a part of the planned machine.

    The division of work (`threads`) stays as planned, and so do the job's results; the placement is
    cut to the available cores. TensorFlow's own pools get at most as many threads as there are
    cores.
    """
    cores = len(machine.cores)
    dropped = tuple(op.key for op in section.ops if op.cores is not None and max(op.cores) >= cores)
    uniform = Uniform(intra=min(section.uniform.intra, cores), inter=section.uniform.inter)
    return Fitted(section, machine, uniform, dropped)
