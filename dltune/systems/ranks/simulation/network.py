"""How long an allreduce takes once all ranks have come: latency and bandwidth (alpha-beta model).

Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
2005: a ring sends 2 (P - 1) messages of n / P bytes; a tree's reduction and broadcast each take
log2 P steps, through which a long message flows in pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Network:
    """`latency`: seconds of a message between two ranks. `bandwidth`: bytes per second that a rank
    can send. `copy`: bytes per second into and out of the fusion buffer (infinite: not counted).
    `fixed`: seconds that every collective takes besides, such as starting it on a device.
    """

    latency: float
    bandwidth: float
    algorithm: Literal["ring", "tree"] = "ring"
    copy: float = math.inf
    fixed: float = 0.0

    def __post_init__(self) -> None:
        if self.latency < 0 or self.fixed < 0 or self.bandwidth <= 0 or self.copy <= 0:
            raise ValueError("a network has bandwidth, and no negative latency")

    def start(self, ranks: int) -> float:
        """Seconds of an allreduce without bytes."""
        steps = 2 * (ranks - 1) if self.algorithm == "ring" else 2 * _levels(ranks)
        return self.fixed + steps * self.latency

    def per_byte(self, ranks: int) -> float:
        """Seconds that each byte adds."""
        if ranks == 1:
            return 0.0
        sent = 2 * (ranks - 1) / ranks if self.algorithm == "ring" else 2.0
        return sent / self.bandwidth

    def few_bytes(self, ranks: int) -> float:
        """Seconds of an allreduce of a few bytes by recursive doubling, as of caches or sleeps."""
        return _levels(ranks) * self.latency


def _levels(ranks: int) -> int:
    return (ranks - 1).bit_length()
