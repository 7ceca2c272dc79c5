"""What depends on what among a graph's transfers, asked by a test."""

from __future__ import annotations

from dltune.planners.allreduce.topology import Topology


def concurrent(topology: Topology, one: int, other: int) -> bool:
    """Whether neither of two IDs depends on the other."""
    return not (topology.before[one] >> other & 1 or topology.before[other] >> one & 1)
