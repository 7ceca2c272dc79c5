"""The tensors of a step through the heap pool, in the order in which they come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dltune.simulate.step_graph import Lives
from dltune.systems.memory.model.heap_pool import BLOCK, HeapPool


class Event(NamedTuple):
    """`number`: of the memory, by its place in `Lives`. `bytes`: None where it is given back."""

    number: int
    bytes: int | None


@dataclass(frozen=True)
class Replay:
    """In bytes: `peak` of what is asked for, `rounded` of the same in whole blocks, `top`: where
    the pool's highest piece ended, so that a pool of that size does. `longest`: pieces that were
    free at once at most. `addresses`: by place in `Lives`, in bytes."""

    allocations: int
    peak: int
    rounded: int
    top: int
    longest: int
    addresses: Sequence[int]

    @property
    def waste(self) -> float:
        """Return by how much the pool must be larger than the peak, as a part of the peak."""
        return self.top / self.peak - 1.0 if self.peak else 0.0


def events(lives: Lives) -> list[Event]:
    """Return the events: memory that ends at a moment is given back before memory that begins then
    is taken."""
    size = lives.bytes.tolist()
    real = np.flatnonzero((lives.end > lives.begin) & (lives.bytes > 0)).tolist()
    begin, end = lives.begin.tolist(), lives.end.tolist()
    found = [(end[number], 0, Event(number, None)) for number in real]
    found += [(begin[number], 1, Event(number, size[number])) for number in real]
    found.sort()
    return [event for _, _, event in found]


def replayed(lives: Lives) -> Replay:
    """Through a pool that is large enough."""
    sequence = events(lives)
    pool = HeapPool.of(sum(_blocks(event.bytes) * BLOCK for event in sequence if event.bytes))
    addresses = [0] * len(lives.bytes)
    sizes: dict[int, int] = {}
    now = blocks = peak = rounded = top = longest = 0
    for number, bytes in sequence:
        if bytes is None:
            gone = sizes.pop(number)
            now, blocks = now - gone, blocks - _blocks(gone)
            pool.release(number)
        else:
            addresses[number] = pool.allocate(number, bytes)
            sizes[number] = bytes
            now, blocks = now + bytes, blocks + _blocks(bytes)
            peak, rounded = max(peak, now), max(rounded, blocks * BLOCK)
            top = max(top, addresses[number] + _blocks(bytes) * BLOCK)
        longest = max(longest, len(pool.free))
    return Replay(len(sequence) // 2, peak, rounded, top, longest, addresses)


def _blocks(bytes: int) -> int:
    return -(-bytes // BLOCK)
