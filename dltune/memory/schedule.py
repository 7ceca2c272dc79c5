"""Nodes in the order in which they run, some of them again, and tensors that come back from another
tier of memory: what is needed when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dltune.graph.csr import Amounts
from dltune.graph.liveness import Lives
from dltune.graph.step_graph import Kind, StepGraph


class Step(NamedTuple):
    """`node` runs. `fetched`: tensors that are brought back just before."""

    node: int
    fetched: tuple[int, ...] = ()


def lives(graph: StepGraph, steps: Sequence[Step]) -> Lives:
    """Over the tensors' memory each time that it is taken, in numbers of steps: from the one that
    gives a tensor out, or before which it is brought back, to behind the last one that reads it
    before that happens again.

    A tensor that is given out again, or brought back later, is so not kept until then. Raises
    ValueError when a step reads what no step before has given out.
    """
    tensors = graph.tensors
    alias, size = tensors.alias.tolist(), tensors.bytes.tolist()
    held = (tensors.kind == Kind.RESULT).tolist()
    produced: list[list[int]] = [[] for _ in range(len(graph))]
    for tensor, node in enumerate(tensors.producer.tolist()):
        if alias[tensor] == tensor and held[tensor]:
            produced[node].append(tensor)
    reads = graph.reads.lists
    place: dict[int, int] = {}  # of a tensor, among those below, the last time
    taken: list[int] = []
    begin: list[int] = []
    end: list[int] = []

    def take(tensor: int, at: int) -> None:
        place[tensor] = len(taken)
        taken.append(tensor)
        begin.append(at)
        end.append(at + 1)

    for at, (node, fetched) in enumerate(steps):
        for tensor in fetched:
            if tensor not in place:
                raise ValueError(f"step {at} brings back what nothing has given out")
            take(tensor, at)
        for tensor in reads[node]:
            if not held[alias[tensor]]:
                continue
            if alias[tensor] not in place:
                raise ValueError(f"{graph.names[node]} reads what nothing has given out")
            end[place[alias[tensor]]] = at + 1
        for tensor in produced[node]:
            take(tensor, at)
    return Lives(
        np.array(taken, np.int32),
        np.array(begin, np.int64),
        np.array(end, np.int64),
        np.array([size[tensor] for tensor in taken], np.int64),
    )


def levels(found: Lives, steps: int) -> tuple[Amounts, Amounts]:
    """By step the bytes that are needed while it runs, and the number of tensors."""
    both = np.zeros((2, steps + 1), np.int64)
    for row, amount in zip(both, (found.bytes, np.ones_like(found.bytes)), strict=True):
        np.add.at(row, found.begin, amount)
        np.add.at(row, found.end, -amount)
    bytes, count = np.cumsum(both, axis=1)[:, :steps]
    return bytes, count
