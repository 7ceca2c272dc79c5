"""From a plan to orders for one process of a job, on the cores that it may use."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from dltune.job.protocol import Orders
from dltune.schemas.machine import Machine
from dltune.schemas.plan import OpPlan, Threads, Uniform
from dltune.system.topology import cores_for


class Handling(enum.Enum):
    """What becomes of an op that the plan has an entry for."""

    PLACED = enum.auto()  # runs at once, on the entry's threads and cores
    ADMITTED = enum.auto()  # waits until strategy 3 or 4 admits it, on cores that they choose
    SMALL = enum.auto()  # below the plan's `small` seconds: left to TensorFlow's own pool
    DROPPED = enum.auto()  # names cores that are not there: left to TensorFlow's own pool


@dataclass(frozen=True)
class Fitted:
    """A plan's thread section on the cores that a process may use.

    `uniform` is what TensorFlow's own pools get. `dropped` are plan entries that name cores which
    are not there.
    """

    section: Threads
    machine: Machine
    uniform: Uniform
    dropped: tuple[str, ...]

    def handling(self, op: OpPlan) -> Handling:
        """What becomes of the op of this entry of the plan."""
        if op.key in self.dropped:
            return Handling.DROPPED
        if op.serial < self.section.small:
            return Handling.SMALL
        # where the plan names cores, there is nothing for an admission to choose
        return Handling.ADMITTED if self.section.corun and op.cores is None else Handling.PLACED

    def orders(self, version: int, targets: Collection[str], *, events: bool = False) -> Orders:
        """The plan as orders for the graphs with these signatures."""
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
        """Where an op runs that is placed."""
        if op.cores is not None:
            return op.cores
        return cores_for(self.machine, min(op.threads, len(self.machine.cores)), op.placement)


def fit(section: Threads, machine: Machine) -> Fitted:
    """A plan's thread section on `machine`, which may be a part of the one planned for.

    How work is divided (`threads`) stays as planned, so numbers stay; where it runs is cut to the
    cores there are. TensorFlow's own pools get no more threads than there are cores.
    """
    cores = len(machine.cores)
    dropped = tuple(op.key for op in section.ops if op.cores is not None and max(op.cores) >= cores)
    uniform = Uniform(intra=min(section.uniform.intra, cores), inter=section.uniform.inter)
    return Fitted(section, machine, uniform, dropped)
