"""The graph of a profiled step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dltune.documents.profile import Node, Step
from dltune.graph.csr import CSR
from dltune.graph.step_graph import StepGraph, Tensors
from dltune.graph.views import VIEWS

# the node type through which a loop's values flow back
BACK = ("NextIteration", "RefNextIteration")


def graph(step: Step) -> StepGraph:
    """A profile of this schema does not tell a node's outputs apart: each has one tensor, of all
    that it gives out."""
    nodes = step.nodes
    owners = _owners(nodes)
    return StepGraph(
        names=[node.name for node in nodes],
        op=np.array([-1 if node.op is None else node.op for node in nodes], np.int32),
        runs=np.array([0.0 if node.op is None else node.repeats for node in nodes]),
        tensors=Tensors.of(
            ((index, 0) for index in range(len(nodes))),
            [node.output_bytes for node in nodes],
            owners,
            [_is_view(nodes[owner]) for owner in owners],  # of variables, and of another graph
        ),
        reads=CSR.of(node.inputs for node in nodes),
        control=CSR.of(node.control for node in nodes),
        back=np.array([node.type in BACK for node in nodes], np.bool_),
    )


def _is_view(node: Node) -> bool:
    return node.type.lstrip("_") in VIEWS


def _owners(nodes: Sequence[Node]) -> list[int]:
    """By node, the one whose memory its output is; of views in a circle, one of them."""
    found: dict[int, int] = {}
    for start in range(len(nodes)):
        path: dict[int, None] = {}
        node = start
        while node not in found and node not in path:
            path[node] = None
            if not _is_view(nodes[node]) or not nodes[node].inputs:
                break
            node = nodes[node].inputs[0]
        found.update(dict.fromkeys(path, found.get(node, node)))
    return [found[node] for node in range(len(nodes))]
