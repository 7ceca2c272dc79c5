"""Schedules of a step's nodes: the memory that each step needs, and an order that needs less.

A schedule lists nodes in the order in which they run, some of them again, and tensors that come
back from another tier of memory. `lives` and `touches` return what is needed when.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dltune.simulate.step_graph import CSR, Amounts, Integers, Kind, Lives, StepGraph, peak

NOTHING: Mapping[int, Collection[int]] = {}
# by step, tensors and the places of their memory in a schedule's `Lives`
Touched = Sequence[Sequence[tuple[int, int]]]


class Step(NamedTuple):
    """`node` runs. `fetched`: tensors that are brought back just before."""

    node: int
    fetched: tuple[int, ...] = ()


def lives(
    graph: StepGraph,
    steps: Sequence[Step],
    written: Mapping[int, Collection[int]] = NOTHING,
    forwarded: Mapping[int, Collection[int]] = NOTHING,
) -> Lives:
    """Return memory each time that it is taken, as in `touches`."""
    return touches(graph, steps, written, forwarded)[0]


def touches(
    graph: StepGraph,
    steps: Sequence[Step],
    written: Mapping[int, Collection[int]] = NOTHING,
    forwarded: Mapping[int, Collection[int]] = NOTHING,
) -> tuple[Lives, Touched]:
    """Over the tensors' memory each time that it is taken, in numbers of steps: from the one that
    gives a tensor out, or before which it is brought back, to behind the last one that reads it
    before that happens again.

    A tensor that is given out again, or brought back later, is so not kept until then. One in the
    memory of another keeps that of the moment at which it was given out. `written`: by node that
    writes a variable, the tensors that hold its value: those that are read later are in memory of
    their own from then on. `forwarded`: by tensor that its kernel may write over an input, those
    inputs in the order in which it tries them: it does where nothing reads that memory later,
    whatever the graph says of the order that was measured. And by step, what it reads, then what
    it gives out, and where that is. Raises ValueError when a step reads what no step before has
    given out.
    """
    tensors = graph.tensors
    alias, size = tensors.alias.tolist(), tensors.bytes.tolist()
    held = (tensors.kind == Kind.RESULT)[tensors.alias].tolist()
    given: list[list[int]] = [[] for _ in range(len(graph))]
    variables: list[list[int]] = [[] for _ in range(len(graph))]
    for tensor, node in enumerate(tensors.producer.tolist()):
        if held[tensor]:
            given[node].append(tensor)
        elif tensors.kind[tensor] == Kind.VARIABLE and alias[tensor] == tensor:
            variables[node].append(tensor)
    reads = graph.reads.lists
    had: set[int] = set()  # of variables, the tensors that have been read of them
    later = _later_reads(graph, steps) if forwarded else {}
    left: dict[int, int] = {}  # reads of memory that are still to come
    place: dict[int, int] = {}  # of the memory that a tensor is in, among those below
    taken: list[int] = []
    begin: list[int] = []
    end: list[int] = []
    touched: list[list[tuple[int, int]]] = []

    def take(tensor: int, at: int) -> None:
        place[tensor] = len(taken)
        taken.append(tensor)
        begin.append(at)
        end.append(at + 1)

    for at, (node, fetched) in enumerate(steps):
        row: list[tuple[int, int]] = []
        touched.append(row)
        for tensor in fetched:
            if tensor not in place:
                raise ValueError(f"step {at} brings back what nothing has given out")
            take(tensor, at)
        for tensor in reads[node]:
            memory = place.get(tensor if held[tensor] else alias[tensor])
            if memory is not None:
                end[memory] = at + 1
                row.append((tensor, memory))
            elif held[tensor]:
                raise ValueError(f"{graph.names[node]} reads what nothing has given out")
        for tensor in given[node]:
            owner = alias[tensor]
            if tensor in forwarded:
                over = (place[one] for one in forwarded[tensor] if held[one])
                free = next((one for one in over if left.get(one) == 1), None)
                if free is None:
                    take(tensor, at)
                else:
                    place[tensor], end[free] = free, at + 1
            elif owner == tensor:
                take(tensor, at)
            else:
                place[tensor] = next(
                    (place[one] for one in reads[node] if alias[one] == owner), place[owner]
                )
                end[place[tensor]] = at + 1
            row.append((tensor, place[tensor]))
            if later:
                left[place[tensor]] = left.get(place[tensor], 0) + later[at, tensor]
        for tensor in reads[node] if later else ():
            if held[tensor]:
                left[place[tensor]] -= 1
        for tensor in variables[node]:
            place.pop(tensor, None)
            had.add(tensor)
        if before := [one for one in written.get(node, ()) if one in had and one not in place]:
            place.update(dict.fromkeys(before, len(taken)))
            row.append((before[0], len(taken)))
            taken.append(before[0])
            begin.append(at)
            end.append(at)
    kept = np.array(end, np.int64) > np.array(begin, np.int64)
    found = Lives(
        np.array(taken, np.int32)[kept],
        np.array(begin, np.int64)[kept],
        np.array(end, np.int64)[kept],
        np.array([size[tensor] for tensor in taken], np.int64)[kept],
    )
    number = (np.cumsum(kept) - 1).tolist()
    return found, [[(tensor, number[one]) for tensor, one in row if kept[one]] for row in touched]


def _later_reads(graph: StepGraph, steps: Sequence[Step]) -> dict[tuple[int, int], int]:
    """Return by step, and tensor that it gives out, how often that is read before it is given out
    again."""
    given: list[list[int]] = [[] for _ in range(len(graph))]
    for tensor, node in enumerate(graph.tensors.producer.tolist()):
        given[node].append(tensor)
    found: dict[tuple[int, int], int] = {}
    latest: dict[int, tuple[int, int]] = {}
    for at, (node, _) in enumerate(steps):
        for tensor in graph.reads.lists[node]:
            if tensor in latest:
                found[latest[tensor]] += 1
        for tensor in given[node]:
            latest[tensor] = at, tensor
            found[at, tensor] = 0
    return found


def levels(found: Lives, steps: int) -> tuple[Amounts, Amounts]:
    """By step the bytes that are needed while it runs, and the number of tensors."""
    both = np.zeros((2, steps + 1), np.int64)
    for row, amount in zip(both, (found.bytes, np.ones_like(found.bytes)), strict=True):
        np.add.at(row, found.begin, amount)
        np.add.at(row, found.end, -amount)
    bytes, count = np.cumsum(both, axis=1)[:, :steps]
    return bytes, count


@dataclass(frozen=True, eq=False)
class Accesses:
    """`lives`: of memory each time that it is taken, a *block*; blocks are known by their places in
    it. `tensors`: by step, what it reads or gives out, and the block.

    These are the accesses to memory of each step of a schedule: a tier of memory must hold what a
    step touches for the step to run.
    """

    lives: Lives
    tensors: Touched

    @functools.cached_property
    def touched(self) -> Sequence[Sequence[int]]:
        """By step, the blocks that it reads or gives out, each once."""
        return [list(dict.fromkeys(block for _, block in row)) for row in self.tensors]

    @functools.cached_property
    def at(self) -> Sequence[Sequence[int]]:
        """By block, the steps that touch it, rising."""
        found: list[list[int]] = [[] for _ in self.lives.tensor]
        for now, row in enumerate(self.touched):
            for block in row:
                found[block].append(now)
        return found

    def alone(self, graph: StepGraph, steps: Sequence[Step]) -> dict[int, dict[int, int]]:
        """Return, by block, and step that touches it, the only tensor of the block's content then
        that is read later: it must come back if the block leaves after that step."""
        producer = graph.tensors.producer.tolist()
        later: list[set[int]] = [set() for _ in self.at]
        found: dict[int, dict[int, int]] = {}
        for now in range(len(self.tensors) - 1, -1, -1):
            for block in self.touched[now]:
                if len(later[block]) == 1:
                    found.setdefault(block, {})[now] = next(iter(later[block]))
            for tensor, block in reversed(self.tensors[now]):
                if producer[tensor] == steps[now].node:
                    later[block].discard(tensor)
                else:
                    later[block].add(tensor)
        return found

    @property
    def bytes(self) -> list[int]:
        """By block."""
        found: list[int] = self.lives.bytes.tolist()
        return found

    @property
    def levels(self) -> Amounts:
        """By step the bytes of all blocks that are alive."""
        return levels(self.lives, len(self.touched))[0]

    @property
    def largest(self) -> int:
        """Return the most bytes that one step touches: no tier can do with less."""
        size = self.bytes
        return max((sum(size[block] for block in row) for row in self.touched), default=0)


def accesses(
    graph: StepGraph,
    steps: Sequence[Step],
    written: Mapping[int, Collection[int]] = NOTHING,
    forwarded: Mapping[int, Collection[int]] = NOTHING,
) -> Accesses:
    """Return the accesses of nodes in the order in which they run. Tensors that `steps` bring back
    are ignored, for who holds a block when is decided after this. Arguments and ValueError as of
    `touches`."""
    plain = [Step(step.node) for step in steps]
    return Accesses(*touches(graph, plain, written, forwarded))


class Meter:
    """A meter of memory. `order`: the nodes as they run first, `written` as of `lives`. A node that
    gives out the value of a variable must not run again.

    It computes the result of `lives`, for nodes that run in an order, some of them again, in
    arrays: a search asks for it thousands of times.
    """

    def __init__(
        self,
        graph: StepGraph,
        order: Sequence[int],
        written: Mapping[int, Collection[int]] = NOTHING,
    ) -> None:
        tensors = graph.tensors
        held = (tensors.kind == Kind.RESULT)[tensors.alias]
        owner = np.flatnonzero(held).astype(np.int32)
        self._given = CSR.grouped(tensors.producer[owner], owner, len(graph))
        read = held[graph.reads.items]
        self._reads = CSR.grouped(graph.reads.row[read], graph.reads.items[read], len(graph))
        self.alias, self._bytes = tensors.alias, tensors.bytes
        self._own = tensors.alias == np.arange(len(tensors))
        self._source = _sources(graph)
        self._values, self._since, place = _values(graph, order, written)
        slot = place[tensors.alias[graph.reads.items]]
        late = slot >= 0
        self._late = CSR.grouped(graph.reads.row[late], slot[late].astype(np.int32), len(graph))

    def lives(self, run: Integers, first: Amounts) -> Lives:
        """`run`: nodes as they run; `first`: where in it each of the order runs first."""
        count = np.int64(len(run) + 1)
        at, tensor = _expanded(self._given, run)
        sort = np.argsort(tensor, kind="stable")
        at, tensor = at[sort], tensor[sort]
        key = tensor * count + at  # rising: a tensor's instances as they come

        def instance(of: Amounts, before: Amounts) -> Amounts:
            return np.searchsorted(key, of * count + before) - 1

        place = np.arange(len(key))
        inner = np.flatnonzero(~self._own[tensor])
        place[inner] = instance(self._source[tensor[inner]], at[inner])
        while not np.array_equal(place, further := place[place]):
            place = further
        end = at + 1
        np.maximum.at(end, place, at + 1)
        read_at, read = self.reads(run)
        np.maximum.at(end, place[instance(read, read_at)], read_at + 1)
        own = self._own[tensor]
        since = first[self._since]
        until = since.copy()
        late_at, slot = _expanded(self._late, run)
        after = late_at > since[slot]
        np.maximum.at(until, slot[after], late_at[after] + 1)
        kept = until > since
        return Lives(
            np.concatenate((tensor[own], self._values[kept])).astype(np.int32),
            np.concatenate((at[own], since[kept])),
            np.concatenate((end[own], until[kept])),
            np.concatenate((self._bytes[tensor[own]], self._bytes[self._values[kept]])),
        )

    def reads(self, run: Integers) -> tuple[Amounts, Amounts]:
        """Where in `run` a result is read, and which tensor."""
        return _expanded(self._reads, run)


def _expanded(rows: CSR, run: Integers) -> tuple[Amounts, Amounts]:
    """Return for all items of these rows: where in `run` the row is, and the item."""
    begin, length = rows.offsets[run], np.diff(rows.offsets)[run]
    at = np.repeat(np.arange(len(run)), length)
    place = np.arange(len(at)) - np.repeat(np.cumsum(length) - length, length)
    return at, rows.items[np.repeat(begin, length) + place].astype(np.int64)


def _sources(graph: StepGraph) -> Amounts:
    """Return by tensor in the memory of another: the tensor in the same memory that its node
    reads."""
    alias, reads = graph.tensors.alias.tolist(), graph.reads.lists
    return np.array(
        [
            next((one for one in reads[node] if alias[one] == owner), owner)
            for owner, node in zip(alias, graph.tensors.producer.tolist(), strict=True)
        ],
        np.int64,
    )


def _values(
    graph: StepGraph, order: Sequence[int], written: Mapping[int, Collection[int]]
) -> tuple[Amounts, Amounts, Amounts]:
    """Values of variables that take memory of their own once the variable is written: a tensor of
    each, and where in `order` that is; and by tensor which of them holds it, or -1."""
    tensors = graph.tensors
    place = np.full(len(tensors), -1, np.int64)
    position = np.zeros(len(graph), np.int64)
    position[order] = np.arange(len(order))
    value: list[int] = []
    since: list[int] = []
    for node in sorted(written, key=position.__getitem__):
        before = [
            one
            for one in written[node]
            if place[one] < 0
            and tensors.kind[one] == Kind.VARIABLE
            and tensors.alias[one] == one
            and position[tensors.producer[one]] < position[node]
        ]
        if before:
            place[before] = len(value)
            value.append(before[0])
            since.append(int(position[node]))
    return np.array(value, np.int64), np.array(since, np.int64), place


_Edges = Sequence[Sequence[int]]


def lean(
    graph: StepGraph,
    order: Sequence[int],
    written: Mapping[int, Collection[int]] = NOTHING,
    in_turn: Sequence[Sequence[int]] = (),
) -> Sequence[int]:
    """Return the order of the lowest peak in bytes among `order` and others of the same nodes;
    `order` itself where none is lower. `written`: as of `lives`; `in_turn`: nodes that
    keep their order among themselves, as those that touch a variable.

    Ours. In this order, results wait in memory for less time. An executor starts a node when it is
    ready: the product of a variable and a constant at once, though it is read at the end of the
    step. Here a node that takes more memory than it frees runs as late as it can, or a node that
    frees more as soon as it can: a weight's gradient is often the last that reads an activation.
    """
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
