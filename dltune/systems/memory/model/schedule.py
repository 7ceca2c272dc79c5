"""Nodes in the order in which they run, some of them again, and tensors that come back from another
tier of memory: what is needed when."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dltune.simulate.step_graph import Amounts, Kind, Lives, StepGraph

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
