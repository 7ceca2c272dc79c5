"""Blocks of memory that leave for another tier between two uses, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dltune.simulate.step_graph import Amounts
from dltune.systems.memory.model.accesses import Accesses
from dltune.systems.memory.model.tiers import Tiers


class Swap(NamedTuple):
    """A `block` of `Accesses` that leaves and comes back. The copy out begins when step `out` has
    ended, and must have ended before step `freed` begins; its memory is taken again before step
    `back`, and the copy in must have ended before step `use` begins. `tier`: which of the far
    ones. out < freed <= back <= use."""

    block: int
    out: int
    freed: int
    back: int
    use: int
    tier: int = 0


class FarTiersFull(Exception):
    """No tier has room for a block that leaves."""


def held(accesses: Accesses, swaps: Iterable[Swap]) -> Amounts:
    """By step the bytes of the blocks that are alive and not away."""
    bytes = accesses.bytes
    change = np.zeros(len(accesses.touched) + 1, np.int64)
    for swap in swaps:
        change[swap.freed] -= bytes[swap.block]
        change[swap.back] += bytes[swap.block]
    return accesses.levels + np.cumsum(change)[:-1]


def placed(accesses: Accesses, swaps: Sequence[Swap], tiers: Tiers) -> list[Swap]:
    """Each in the fastest tier that has room for it from `out` to `use`. Raises FarTiersFull."""
    bytes = accesses.bytes
    room = [np.full(len(accesses.touched), tier.bytes, np.int64) for tier in tiers.far]
    found = []
    for swap in sorted(swaps, key=lambda one: one.out):
        size, span = bytes[swap.block], slice(swap.out, swap.use + 1)
        for tier, free in enumerate(room):
            if free[span].min() >= size:
                free[span] -= size
                found.append(swap._replace(tier=tier))
                break
        else:
            raise FarTiersFull(f"{size} bytes have room in no tier")
    return found


def traffic(accesses: Accesses, swaps: Iterable[Swap]) -> int:
    """Bytes that are copied, out and in."""
    bytes = accesses.bytes
    return 2 * sum(bytes[swap.block] for swap in swaps)
