"""The result of a simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

# Activities of a rank: its background thread sleeps, oversleeps (should run and does not), waits
# for the other ranks, transfers; the rank computes, reads its next batch.
Doing = Literal["sleep", "oversleep", "wait", "transfer", "compute", "input"]
DOINGS: tuple[Doing, ...] = ("sleep", "oversleep", "wait", "transfer", "compute", "input")


@dataclass(frozen=True)
class Slice:
    """A rank does this from `start` to `end`, in seconds since the simulation began."""

    rank: int
    doing: Doing
    start: float
    end: float


@dataclass(frozen=True)
class Outcome:
    """Figures of the counted steps alone (warm-up left out); means over ranks and steps, in
    seconds.

    `steps`: from one step's last transfer to the next one's. `compute`: until a rank's last tensor
    was ready; `slowest`: until that of the last rank was. The rest of a step is the wait for its
    background threads; `transfer`: of that or under it, collectives under way. `background`: CPU
    seconds per second of one background thread. `cycles` of a rank, of which in `empty` nothing was
    transferred; a wake-up for a bin is a cycle. `batches`: collectives of gradients. `oversleep`:
    mean and worst of a thread that had slept, its number in `sleeps`. `slices`: activities of the
    drawn ranks.
    """

    method: str
    steps: tuple[float, ...]
    compute: float
    slowest: float
    transfer: float
    background: float
    cycles: int
    empty: int
    batches: int
    sleeps: int
    oversleep: float
    worst_oversleep: float
    slices: tuple[Slice, ...] = ()

    @property
    def seconds(self) -> float:
        """Mean step time."""
        return math.fsum(self.steps) / len(self.steps)

    @property
    def exposed(self) -> float:
        """Seconds of a step after the last rank's last tensor was ready."""
        return self.seconds - self.slowest

    @property
    def cycle_rate(self) -> float:
        """Cycles per second of a rank."""
        return self.cycles / math.fsum(self.steps)

    @property
    def empty_share(self) -> float:
        return self.empty / self.cycles if self.cycles else 0.0

    @property
    def batches_per_step(self) -> float:
        return self.batches / len(self.steps)
