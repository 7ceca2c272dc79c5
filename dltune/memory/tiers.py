"""Tiers of memory: one that ops compute in, and others that hold what has no room there
(SuperNeurons' unified tensor pool, Fig. 7).

Bandwidths of a tier are those between it and the near one, in bytes a second, each way on its own:
copies in and out are done by engines beside the cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dltune.simulate.engine import Link

GIB = 1 << 30


@dataclass(frozen=True)
class Tier:
    """`bytes` that it holds. `latency`: seconds that each copy takes besides."""

    name: str
    bytes: int
    bandwidth: float
    latency: float = 0.0

    @property
    def link(self) -> Link:
        """One way of it: one copy after the other, of those that wait the most urgent."""
        return Link(self.bandwidth, self.latency, by_priority=True)


@dataclass(frozen=True)
class Tiers:
    """`near`: bytes of the memory that ops compute in. `far`: the fastest first."""

    near: int
    far: Sequence[Tier]


# as section 3.3.2 has its links: over PCI-E, between GPUs at one switch, to another node's GPU
HOST = Tier("pinned host memory", 256 * GIB, 8e9)
PEER = Tier("another GPU", 12 * GIB, 10e9)
REMOTE = Tier("another node's GPU", 12 * GIB, 6e9)

KNOWN: Mapping[str, Tiers] = {
    # the paper's card; how much memory its hosts had it does not tell
    "k40c": Tiers(12 * GIB, (HOST,)),
    "k40c-peers": Tiers(12 * GIB, (PEER, HOST, REMOTE)),
    # 16 GiB of MCDRAM in flat mode; copies are bound by DDR4, 90 GB/s of STREAM (Sodani et al.,
    # "Knights Landing: second-generation Intel Xeon Phi product", 2016), half of it each way
    "knl-7250": Tiers(16 * GIB, (Tier("DDR4", 96 * GIB, 45e9),)),
}


def with_file(near: int, bytes: int, bandwidth: float) -> Tiers:
    """Main memory and a file beside it; what its storage does in a second is measured, not
    known."""
    return Tiers(near, (Tier("file", bytes, bandwidth),))
