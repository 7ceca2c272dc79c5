"""The result of `schedule.lives` for nodes that run in an order, some of them again, computed in
arrays: a search asks for it thousands of times."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dltune.simulate.step_graph import CSR, Amounts, Integers, Kind, Lives, StepGraph
from dltune.systems.memory.model.schedule import NOTHING


class Meter:
    """A meter of memory. `order`: the nodes as they run first, `written` as of `lives`. A node that
    gives out the value of a variable must not run again."""

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
