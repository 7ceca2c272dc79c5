"""An order of a step's nodes in which results wait in memory for less time.

Ours. An executor starts a node when it is ready: the product of a variable and a constant at once,
though it is read at the end of the step. Here a node that takes more memory than it frees runs as
late as it can, or a node that frees more as soon as it can: a weight's gradient is often the last
that reads an activation.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dltune.simulate.step_graph import Kind, StepGraph, peak
from dltune.systems.memory.model.schedule import NOTHING, Step, lives

_Edges = Sequence[Sequence[int]]


def lean(
    graph: StepGraph,
    order: Sequence[int],
    written: Mapping[int, Collection[int]] = NOTHING,
    in_turn: Sequence[Sequence[int]] = (),
) -> Sequence[int]:
    """Return the order of the lowest peak in bytes among `order` and others of the same nodes;
    `order` itself where none is lower. `written`: as of `schedule.lives`; `in_turn`: nodes that
    keep their order among themselves, as those that touch a variable."""
    before, after = _edges(graph, order, in_turn)
    early = _early(graph, after, order)
    orders = (order, _late(graph, before, order), early, _late(graph, before, early))
    return min(orders, key=lambda one: peak(lives(graph, [Step(node) for node in one], written))[0])


def _edges(
    graph: StepGraph, order: Sequence[int], in_turn: Sequence[Sequence[int]]
) -> tuple[_Edges, _Edges]:
    """By node what must run before it, and what after it."""
    before = [list(row) for row in graph.predecessors.lists]
    place = {node: at for at, node in enumerate(order)}
    for nodes in in_turn:
        for first, second in itertools.pairwise(sorted(nodes, key=place.__getitem__)):
            before[second].append(first)
    after: list[list[int]] = [[] for _ in before]
    for node, row in enumerate(before):
        for one in row:
            after[one].append(node)
    return before, after


def _late(graph: StepGraph, before: _Edges, order: Sequence[int]) -> list[int]:
    """Return an order in which a node that takes memory runs just before the first that waits for
    it: the step drawn from its end."""
    takes = _takes(graph, order)
    return _drawn(before, order[::-1], lambda node: takes[node] > 0)[::-1]


def _early(graph: StepGraph, after: _Edges, order: Sequence[int]) -> list[int]:
    """Return an order in which a node that frees memory runs as soon as it can."""
    takes = _takes(graph, order)
    return _drawn(after, order, lambda node: takes[node] < 0)


def _takes(graph: StepGraph, order: Sequence[int]) -> list[int]:
    """Return by node the bytes of its outputs less those of the tensors that it is the last to
    read."""
    tensors = graph.tensors
    alias, size = tensors.alias.tolist(), tensors.bytes.tolist()
    last = {alias[tensor]: node for node in order for tensor in graph.reads.lists[node]}
    takes = [0] * len(graph)
    owned = (tensors.alias == np.arange(len(tensors))) & (tensors.kind == Kind.RESULT)
    for tensor in np.flatnonzero(owned).tolist():
        takes[int(tensors.producer[tensor])] += size[tensor]
        if tensor in last:
            takes[last[tensor]] -= size[tensor]
    return takes


def _drawn(onward: _Edges, order: Sequence[int], first: Callable[[int], Any]) -> list[int]:
    """The nodes one by one, as in `order`, but those first as soon as nothing before them is left.
    `onward`: by node those that come after it."""
    place = {node: (not first(node), at) for at, node in enumerate(order)}
    waits = [0] * len(order)
    for row in onward:
        for node in row:
            waits[node] += 1
    heap = [(place[node], node) for node in order if not waits[node]]
    heapq.heapify(heap)
    drawn = []
    while heap:
        _, node = heapq.heappop(heap)
        drawn.append(node)
        for one in onward[node]:
            waits[one] -= 1
            if not waits[one]:
                heapq.heappush(heap, (place[one], one))
    return drawn
