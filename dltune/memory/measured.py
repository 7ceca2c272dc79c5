"""A profiled step, ready for its memory to be planned."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dltune.documents.profile import Node, Step
from dltune.graph import profiled
from dltune.graph.step_graph import StepGraph

# what does not give the same a second time, or does more than give something, by parts of its type
_ONCE = (
    "Variable",
    "Assign",
    "ResourceApply",
    "ResourceGather",
    "ResourceScatter",
    "Arg",
    "Retval",
    "Iterator",
    "Dataset",
    "Queue",
    "Stack",
    "TensorList",
    "Send",
    "Recv",
    "Collective",
    "Horovod",
    "Call",
    "PyFunc",
    "Switch",
    "Merge",
    "Enter",
    "Exit",
    "LoopCond",
    "NextIteration",
    "If",
    "While",
    "Case",
    "Print",
    "Assert",
    "Summary",
    "Save",
    "Restore",
)
# of these the stateless ones give the same
_DRAWN = ("Random", "Multinomial", "TruncatedNormal")
_READ = "ReadVariableOp"
_WRITES = ("Assign", "ResourceApply", "ResourceScatter")


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """`order`: the nodes as they began in the sampled execution. By node `seconds` that it took
    there, and `again`, as `selection.select` reads it. `written`: as `schedule.lives` does."""

    graph: StepGraph
    order: Sequence[int]
    seconds: Sequence[float]
    again: Sequence[int]
    written: Mapping[int, Collection[int]]


def measured(step: Step) -> MeasuredStep:
    """Raises UsageError when ops wait for each other."""
    graph = profiled.acyclic(step)
    order = _order(graph, step.nodes)
    seconds = [
        0.0 if node.start is None or node.end is None else node.end - node.start
        for node in step.nodes
    ]
    written = _written(graph, step.nodes)
    return MeasuredStep(graph, order, seconds, _again(graph, step.nodes, order, written), written)


def _order(graph: StepGraph, nodes: Sequence[Node]) -> list[int]:
    """As they began; those of which nobody knows when, as soon as they could."""
    waits = [len(row) for row in graph.predecessors.lists]
    began = [-1.0 if node.start is None else node.start for node in nodes]
    heap = [(began[node], node) for node, count in enumerate(waits) if not count]
    heapq.heapify(heap)
    found = []
    while heap:
        at, node = heapq.heappop(heap)
        found.append(node)
        for after in graph.successors.lists[node]:
            waits[after] -= 1
            if not waits[after]:
                known = began[after]
                heapq.heappush(heap, (at if known < 0 else known, after))
    return found


def _written(graph: StepGraph, nodes: Sequence[Node]) -> dict[int, list[int]]:
    """By node that writes a variable, the tensors that hold its value before."""
    values: dict[int, list[int]] = {}  # by the node of a variable's handle
    for tensor, node in enumerate(graph.tensors.producer.tolist()):
        if nodes[node].type.endswith(_READ) and nodes[node].inputs:
            values.setdefault(nodes[node].inputs[0], []).append(tensor)
    return {
        node: values[found.inputs[0]]
        for node, found in enumerate(nodes)
        if found.type.startswith(_WRITES) and found.inputs and found.inputs[0] in values
    }


def _again(
    graph: StepGraph,
    nodes: Sequence[Node],
    order: Sequence[int],
    written: Mapping[int, Collection[int]],
) -> list[int]:
    """What reads a variable may run again until that is written, for a value that is read later
    takes memory of its own."""
    until = [len(nodes)] * len(graph.tensors)
    for at, node in reversed(list(enumerate(order))):
        for tensor in written.get(node, ()):
            until[tensor] = at
    return [
        min((until[tensor] for tensor in row), default=len(nodes)) if _pure(found.type) else 0
        for found, row in zip(nodes, graph.reads.lists, strict=True)
    ]


def _pure(type: str) -> bool:
    if any(part in type for part in _ONCE):
        return False
    return type.startswith("Stateless") or not any(part in type for part in _DRAWN)
