"""A worker's step in as few pieces as its transfers allow, to be simulated many times.

Ops that need the same receives and lead to the same sends are one piece: they become ready
together, and nobody waits for one of them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.step_graph import CSR, Numbers, StepGraph, complete, reached


@dataclass(frozen=True, eq=False)
class Worker:
    """Tasks: receives, then sends, each in the order of the nodes, then pieces of computing.

    `successors`: per task, those that wait for it. `seconds`: per piece.
    """

    receives: int
    sends: int
    successors: CSR
    seconds: Numbers

    @property
    def tasks(self) -> int:
        return len(self.successors)


def worker(
    graph: StepGraph, seconds: Sequence[float], received: Collection[int], sent: Collection[int]
) -> Worker:
    """`seconds`: per node, that an op runs. `received` and `sent`: the nodes that are transfers.
    Raises ValueError when the graph has a cycle."""
    order = complete(graph)
    transfers = {node: task for task, node in enumerate([*sorted(received), *sorted(sent)])}
    needs = reached(order, graph.predecessors.lists, received)
    leads = reached(order[::-1], graph.successors.lists, sent)
    pieces: dict[tuple[int, int], int] = {}
    work: list[float] = []
    task = [0] * len(graph)
    for node in order:
        if node in transfers:
            task[node] = transfers[node]
            continue
        piece = pieces.setdefault((needs[node], leads[node]), len(pieces))
        if piece == len(work):
            work.append(0.0)
        work[piece] += seconds[node]
        task[node] = len(transfers) + piece
    rows: list[set[int]] = [set() for _ in range(len(transfers) + len(pieces))]
    for node, after in enumerate(graph.successors.lists):
        rows[task[node]].update(task[other] for other in after if task[other] != task[node])
    return Worker(len(received), len(sent), CSR.of(map(sorted, rows)), np.array(work))
