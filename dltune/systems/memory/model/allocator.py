"""Allocators of a step's memory: the heap pool of SuperNeurons, and TensorFlow's allocator."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dltune.simulate.step_graph import Kind, Lives
from dltune.systems.memory.model.profiled_step import MeasuredStep

BLOCK = 1 << 10


class PoolExhausted(Exception):
    """No free piece is large enough."""


@dataclass
class HeapPool:
    """Addresses and lengths are in blocks. `free`: (address, length) of the free pieces, in order,
    no two side by side. `taken`: by whose it is.

    Memory is taken once and handed out in blocks (SuperNeurons, section 3.2.1). The pool has a list
    of free pieces, of which the first that is large enough is taken, and a table of used pieces.

    Pieces that are given back become one with free neighbours, which the paper does not mention:
    without that they only ever become smaller.
    """

    blocks: int
    free: list[tuple[int, int]] = field(default_factory=list)
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, bytes: int) -> HeapPool:
        blocks = bytes // BLOCK
        return cls(blocks, [(0, blocks)] if blocks else [])

    def allocate(self, number: int, bytes: int) -> int:
        """Whose it is, is for the caller to number. The address in bytes. Raises PoolExhausted."""
        wanted = max(1, -(-bytes // BLOCK))
        for place, (address, length) in enumerate(self.free):
            if length >= wanted:
                rest = (address + wanted, length - wanted)
                self.free[place : place + 1] = [rest] if rest[1] else []
                self.taken[number] = (address, wanted)
                return address * BLOCK
        raise PoolExhausted(f"{wanted} blocks are wanted, the largest free piece has "
                            f"{self.largest // BLOCK}")  # fmt: skip

    def release(self, number: int) -> None:
        address, length = self.taken.pop(number)
        place = bisect.bisect(self.free, (address, length))
        if place < len(self.free) and address + length == self.free[place][0]:
            length += self.free.pop(place)[1]
        if place and sum(self.free[place - 1]) == address:
            place -= 1
            before = self.free.pop(place)
            address, length = before[0], before[1] + length
        self.free.insert(place, (address, length))

    @property
    def largest(self) -> int:
        """Bytes of the largest free piece."""
        return BLOCK * max((length for _, length in self.free), default=0)

    @property
    def top(self) -> int:
        """Bytes up to the end of the last used piece: a pool of that size would do for it."""
        return BLOCK * max((address + length for address, length in self.taken.values()), default=0)


_ENDLESS = 1 << 50  # bytes of a pool that is always large enough


@dataclass(frozen=True)
class Held:
    """In bytes: `peak` of a step's results, and where the highest piece ended of a pool that takes
    the first piece that is large enough."""

    peak: int
    top: int


@dataclass(eq=False)
class _Buffer:
    """`bytes`: 0 while it is none of the step's results. `references`: of reads to come."""

    bytes: int = 0
    references: int = 0


@dataclass
class _Allocator:
    pool: HeapPool = field(default_factory=lambda: HeapPool.of(_ENDLESS))
    held: int = 0
    peak: int = 0
    top: int = 0

    def take(self, buffer: _Buffer, bytes: int) -> _Buffer:
        buffer.bytes = bytes
        self.held += bytes
        self.peak = max(self.peak, self.held)
        if bytes:
            address = self.pool.allocate(id(buffer), bytes)
            self.top = max(self.top, address + -(-bytes // BLOCK) * BLOCK)
        return buffer

    def settle(self, buffer: _Buffer) -> None:
        """Gives it back when nothing will read it any more."""
        if buffer.bytes and not buffer.references:
            self.held -= buffer.bytes
            self.pool.release(id(buffer))
            buffer.bytes = 0


def executed(step: MeasuredStep, order: Sequence[int]) -> Held:
    """Return the memory of TensorFlow's allocator while an executor runs a step in a planned order.

    `order`: nodes as they run, some of them again: what reads a result reads the latest.

    The allocator counts references as TensorFlow does, forward in time: a buffer is held by what
    will still read it, by a kernel until it has ended, and by the variable whose value it is. So it
    checks `schedule.lives`, which looks for the last reader.
    """
    graph, tensors = step.graph, step.graph.tensors
    alias, size = tensors.alias.tolist(), tensors.bytes.tolist()
    results = (tensors.kind == Kind.RESULT)[tensors.alias].tolist()
    reads = graph.reads.lists
    given: list[list[int]] = [[] for _ in reads]
    for tensor, node in enumerate(tensors.producer.tolist()):
        given[node].append(tensor)
    readers = _readers(reads, given, order)
    variable = {tensor: min(row) for row in step.written.values() for tensor in row}
    values = {one: _Buffer() for one in variable.values()}
    allocator = _Allocator()
    at: dict[int, _Buffer] = {}

    def output(node: int, tensor: int) -> _Buffer:
        if tensor in variable:
            return values[variable[tensor]]
        if results[tensor] and tensor in step.forwarded:
            inputs = (at[one] for one in step.forwarded[tensor] if results[one])
            over = next((one for one in inputs if one.references == 1), None)
            return over or allocator.take(_Buffer(), size[tensor])
        if alias[tensor] == tensor:
            return allocator.take(_Buffer(), size[tensor]) if results[tensor] else _Buffer()
        owner = alias[tensor]
        return at[next((one for one in reads[node] if alias[one] == owner), owner)]

    for place, node in enumerate(order):
        inputs = [at[tensor] for tensor in reads[node]]
        outputs = []
        for tensor in given[node]:
            outputs.append(output(node, tensor))
            outputs[-1].references += readers[place, tensor]
            at[tensor] = outputs[-1]
        for one in {variable[tensor] for tensor in step.written.get(node, ())}:
            if values[one].references:
                allocator.take(values[one], size[one])
                values[one] = _Buffer()
        for buffer in inputs:
            buffer.references -= 1
        for buffer in dict.fromkeys((*inputs, *outputs)):
            allocator.settle(buffer)
    return Held(allocator.peak, allocator.top)


def _readers(
    reads: Sequence[Sequence[int]], given: Sequence[Sequence[int]], order: Sequence[int]
) -> Counter[tuple[int, int]]:
    """Return how often the outputs at a place of the order are read: by that place, and tensor."""
    latest: dict[int, int] = {}
    found: Counter[tuple[int, int]] = Counter()
    for place, node in enumerate(order):
        found.update((latest[tensor], tensor) for tensor in reads[node])
        latest.update(dict.fromkeys(given[node], place))
    return found


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
    """Replay the tensors of a step, in the order in which they come and go, through a heap pool
    that is large enough."""
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
