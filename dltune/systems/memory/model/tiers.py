"""Tiers of memory: one that ops compute in, and others that hold tensors without room there
(SuperNeurons' unified tensor pool, Fig. 7). Copies in and out are done by engines separate from the
cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine, Tier
from dltune.simulate.engine import Link

GIB = 1 << 30


@dataclass(frozen=True)
class Tiers:
    """`near`: bytes of the memory that ops compute in. `far`: the fastest first."""

    near: int
    far: Sequence[Tier]

    @classmethod
    def of(cls, machine: Machine) -> Tiers:
        """Return the machine's tiers. Raises UsageError when its memory size is unknown."""
        if machine.memory is None:
            raise UsageError(
                f"the machine {machine.name!r} does not state the size of its memory",
                remedy="add `memory`, in bytes, to the machine file",
            )
        return cls(machine.memory, machine.tiers)


def link(tier: Tier) -> Link:
    """One way of it: one copy after the other, of those that wait the most urgent."""
    return Link(tier.bandwidth, tier.latency, by_priority=True)


# as section 3.3.2 has its links: over PCI-E, between GPUs at one switch, to another node's GPU
HOST = Tier("pinned host memory", 256 * GIB, 8e9)
PEER = Tier("another GPU", 12 * GIB, 10e9)
REMOTE = Tier("another node's GPU", 12 * GIB, 6e9)

# the paper's card; the paper does not give its hosts' memory
GPUS: Mapping[str, Tiers] = {
    "k40c": Tiers(12 * GIB, (HOST,)),
    "k40c-peers": Tiers(12 * GIB, (PEER, HOST, REMOTE)),
}


def with_file(near: int, bytes: int, bandwidth: float) -> Tiers:
    """Return main memory and a file next to it; its storage's speed is measured, not known."""
    return Tiers(near, (Tier("file", bytes, bandwidth),))
