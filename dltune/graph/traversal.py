"""Orders of a graph's nodes, and paths through it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dltune.graph.step_graph import StepGraph


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


def critical_path(graph: StepGraph, seconds: Sequence[float]) -> tuple[float, list[int]]:
    """The longest path, where a node takes `seconds`: what no number of cores makes shorter.

    Its length, and its nodes in order. Of equal ones, that through nodes that come first. Raises
    ValueError when the graph has a cycle.
    """
    order = topological(graph)
    if len(order) < len(graph):
        raise ValueError(f"{len(graph) - len(order)} nodes wait for each other in a cycle")
    predecessors = graph.predecessors.lists
    end = [0.0] * len(graph)
    for node in order:
        start = max((end[before] for before in predecessors[node]), default=0.0)
        end[node] = start + seconds[node]
    if not end:
        return 0.0, []
    node = max(range(len(end)), key=lambda k: (end[k], -k))
    path = [node]
    while predecessors[node]:
        node = max(predecessors[node], key=lambda k: (end[k], -k))
        path.append(node)
    return end[path[0]], path[::-1]
