"""A step whose copies to other tiers and back overlap with computing, simulated.

The cores do one step of the schedule after the other; each far tier has a copy engine for each
direction, which of the copies that wait does that which a step will wait for first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.engine import CoreSet, FifoWork, Graph
from dltune.simulate.step_graph import CSR
from dltune.systems.memory.model.accesses import Accesses
from dltune.systems.memory.model.swaps import Swap, traffic
from dltune.systems.memory.model.tiers import Tiers, link

# computing is counted in seconds of one op
_SECOND = FifoWork(1.0, 1.0, 1)


@dataclass(frozen=True)
class Overlapped:
    """`seconds`: of the whole step. `computing`: those of its ops. `traffic`: bytes copied, out and
    in. `start`: by step of the schedule, when it began."""

    seconds: float
    computing: float
    traffic: int
    start: Sequence[float]

    @property
    def stall(self) -> float:
        """Seconds in which the cores wait for a copy."""
        return max(0.0, self.seconds - self.computing)


def overlapped(
    accesses: Accesses, seconds: Sequence[float], swaps: Sequence[Swap], tiers: Tiers
) -> Overlapped:
    """`seconds`: by step of the schedule. A step waits for the tensors that it frees and for those
    that it reads; a copy in waits for the memory that it comes into."""
    steps, bytes = len(seconds), accesses.bytes
    outs = [steps + 2 * number for number in range(len(swaps))]
    rows: list[list[int]] = [[step + 1] for step in range(steps - 1)]
    rows += [[] for _ in range(min(steps, 1) + 2 * len(swaps))]
    freed: dict[int, list[int]] = {}  # by step, the copies out that make room before it
    for swap, out in zip(swaps, outs, strict=True):
        rows[swap.out].append(out)
        rows[out] += [swap.freed, out + 1]
        freed.setdefault(swap.freed, []).append(out)
    for swap, out in zip(swaps, outs, strict=True):
        rows[out + 1].append(swap.use)
        rows[swap.back - 1].append(out + 1)
        for other in freed.get(swap.back, ()):
            if other != out:
                rows[other].append(out + 1)
    where = np.zeros(len(rows), np.int32)
    amount, urgency = np.zeros(len(rows)), np.zeros(len(rows))
    for swap, out in zip(swaps, outs, strict=True):
        where[out : out + 2] = 1 + 2 * swap.tier, 2 + 2 * swap.tier
        amount[out : out + 2] = bytes[swap.block]
        urgency[out : out + 2] = swap.freed, swap.use
    op = np.where(where == 0, 0, -1).astype(np.int32)
    runs = np.zeros(len(rows))
    runs[:steps] = seconds
    links = [link(tier) for tier in tiers.far for _ in range(2)]
    made = Graph(CSR.of(map(dict.fromkeys, rows)), op, runs).on(
        [CoreSet([_SECOND], cores=1, inter=1)], links, where, amount, urgency
    )
    return Overlapped(
        max(made.end[:steps], default=0.0),
        float(sum(seconds)),
        traffic(accesses, swaps),
        made.start[:steps],
    )
