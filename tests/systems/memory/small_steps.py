"""Steps of a few nodes, and the best that can be done with them."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
from hypothesis import strategies as st

from dltune.simulate.step_graph import CSR, Kind, StepGraph, Tensors


def graph(
    reads: list[list[int]],
    bytes: list[int],
    kinds: list[Kind] | None = None,
    control: list[list[int]] | None = None,
    alias: list[int] | None = None,
) -> StepGraph:
    """Each node gives out one tensor."""
    count = len(reads)
    return StepGraph(
        [str(node) for node in range(count)],
        np.arange(count, dtype=np.int32),
        np.ones(count),
        Tensors.of([(node, 0) for node in range(count)], bytes, alias, kinds),
        CSR.of(reads),
        CSR.of(control or [() for _ in reads]),
        np.zeros(count, np.bool_),
    )


@st.composite
def graphs(draw: st.DrawFn) -> StepGraph:
    """Each node gives out one tensor, some of them in the memory of one that they read."""
    count = draw(st.integers(1, 8))
    reads = [
        draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in range(count)
    ]
    alias: list[int] = []
    for node, row in enumerate(reads):
        over = draw(st.booleans()) and row
        alias.append(alias[row[0]] if over else node)
    kinds = [draw(st.sampled_from([Kind.RESULT, Kind.RESULT, Kind.VARIABLE])) for _ in reads]
    kind = [kinds[owner] for owner in alias]
    bytes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return graph(reads, bytes, kind, alias=alias)


def least_seconds(made: StepGraph, seconds: list[int], budget: int) -> int | None:
    """The least seconds of computing again with which the nodes run in their order: a shortest
    path over what has run and what is held. None: the budget is too small."""
    reads, size = made.reads.lists, made.tensors.bytes.tolist()
    count = len(made)
    best = {(0, frozenset[int]()): 0}
    heap = [(0, 0, 0, frozenset[int]())]
    tie = itertools.count(1)
    while heap:
        cost, _, done, held = heapq.heappop(heap)
        if done == count:
            return cost
        if best[done, held] < cost:
            continue
        for node in range(done + 1):
            if not held.issuperset(reads[node]):
                continue
            during = held | {node}
            if sum(size[one] for one in during) > budget:
                continue
            more = 0 if node == done else seconds[node]
            reached = max(done, node + 1)
            for kept in range(1 << len(during)):
                left = frozenset(one for k, one in enumerate(sorted(during)) if kept >> k & 1)
                if cost + more < best.get((reached, left), 1 << 60):
                    best[reached, left] = cost + more
                    heapq.heappush(heap, (cost + more, next(tie), reached, left))
    return None
