"""Orders of a graph's nodes, and what comes before them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from dltune.simulate.graph.step_graph import StepGraph


def topological(graph: StepGraph) -> list[int]:
    """The nodes in an order in which each comes after all that it waits for: breadth first, as
    they become ready. Nodes on a cycle, and behind one, are left out (`cyclic`)."""
    waits = np.diff(graph.predecessors.offsets).tolist()
    successors = graph.successors.lists
    ready = [node for node, count in enumerate(waits) if count == 0]
    for node in ready:
        for after in successors[node]:
            waits[after] -= 1
            if waits[after] == 0:
                ready.append(after)
    return ready


def complete(graph: StepGraph) -> list[int]:
    """`topological`, of every node. Raises ValueError where some wait for each other."""
    order = topological(graph)
    if len(order) < len(graph):
        raise ValueError(f"{len(graph) - len(order)} nodes wait for each other in a cycle")
    return order


def reached(
    order: Sequence[int], before: Sequence[Sequence[int]], marked: Collection[int]
) -> list[int]:
    """By node, the marked ones among it and those before it, a bit each, in rising order."""
    bit = {node: 1 << number for number, node in enumerate(sorted(marked))}
    found = [0] * len(order)
    for node in order:
        own = bit.get(node, 0)
        for other in before[node]:
            own |= found[other]
        found[node] = own
    return found


def cyclic(graph: StepGraph) -> list[int]:
    """The nodes that can never start, in rising order."""
    return sorted(set(range(len(graph))).difference(topological(graph)))


def ancestors(graph: StepGraph, nodes: Iterable[int]) -> set[int]:
    """These nodes, and all that must have ended before one of them starts."""
    predecessors = graph.predecessors.lists
    found: set[int] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += predecessors[node]
    return found
