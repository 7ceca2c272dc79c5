"""The memory of TensorFlow's allocator while an executor runs a step's nodes in a planned order.

It counts references as TensorFlow does, forward in time: a buffer is held by what will still read
it, by a kernel until it has ended, and by the variable whose value it is. So it checks
`schedule.lives`, which looks for the last reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dltune.simulate.step_graph import Kind
from dltune.systems.memory.model.heap_pool import BLOCK, HeapPool
from dltune.systems.memory.model.measured import MeasuredStep

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
    """`order`: nodes as they run, some of them again: what reads a result reads the latest."""
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
