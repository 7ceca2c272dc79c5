"""The graph of a profiled step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dltune.analysis.views import VIEWS
from dltune.base.errors import UsageError
from dltune.schemas.profile import Node, Step
from dltune.simulate.graph.csr import CSR
from dltune.simulate.graph.step_graph import Kind, StepGraph, Tensors
from dltune.simulate.graph.traversal import cyclic

# the node type through which a loop's values flow back
BACK = ("NextIteration", "RefNextIteration")
# what it takes is handed on by reference, without a size, until a node gives it out as its result
_TEMPORARY, _REFERENCE = "TemporaryVariable", "_ref"
# by type, with or without the underscore of an op that the runtime itself has made
_KINDS = {
    **dict.fromkeys(("ReadVariableOp", "VarHandleOp", "Variable", "VariableV2"), Kind.VARIABLE),
    **dict.fromkeys(("Const", "HostConst"), Kind.CONSTANT),
    **dict.fromkeys(("Arg", "Placeholder"), Kind.ARGUMENT),
}


def graph(step: Step) -> StepGraph:
    """Return the graph of a step. If a profile does not distinguish a node's outputs (its first
    schema never did, nor does any for a node that did not run), the node has one tensor for all its
    outputs. A kernel's temporary memory is a tensor that nothing reads, behind its others."""
    nodes = step.nodes
    tensors = _Tensors.of(nodes)
    return StepGraph(
        names=[node.name for node in nodes],
        op=np.array([-1 if node.op is None else node.op for node in nodes], np.int32),
        runs=np.array([0.0 if node.op is None else node.repeats for node in nodes]),
        tensors=tensors.assembled(),
        reads=CSR.of(map(tensors.read, range(len(nodes)))),
        control=CSR.of(node.control for node in nodes),
        back=np.array([node.type in BACK for node in nodes], np.bool_),
    )


def acyclic(step: Step) -> StepGraph:
    """Return the same graph. Raises UsageError when nodes wait for each other."""
    made = graph(step)
    if waiting := cyclic(made):
        names = ", ".join(made.names[node] for node in waiting[:3])
        raise UsageError(
            f"the graph of step {step.name} has a cycle: {len(waiting)} ops wait for each other: "
            f"{names}, …",
            remedy="profile the job again",
        )
    return made


@dataclass(frozen=True)
class _Tensors:
    """The tensors. `first`: the number of each node's first tensor, and the total number."""

    nodes: Sequence[Node]
    first: Sequence[int]

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> _Tensors:
        counts = [max(1, len(node.outputs)) for node in nodes]
        for node in nodes:
            for other, slot in zip(node.inputs, node.slots, strict=False):
                counts[other] = max(counts[other], slot + 1)
        counts = [count + bool(node.scratch) for count, node in zip(counts, nodes, strict=True)]
        return cls(nodes, [0, *itertools.accumulate(counts)])

    def read(self, node: int) -> list[int]:
        """The tensors at its inputs."""
        found = self.nodes[node]
        slots = found.slots or (0,) * len(found.inputs)
        return [self.first[other] + slot for other, slot in zip(found.inputs, slots, strict=True)]

    def assembled(self) -> Tensors:
        places = [
            (node, slot)
            for node in range(len(self.nodes))
            for slot in range(self.first[node + 1] - self.first[node])
        ]
        owners = _owners([self._alias(node, slot) for node, slot in places])
        bytes = [self._bytes(node, slot) for node, slot in places]
        for tensor, owner in enumerate(owners):
            if self.nodes[places[owner][0]].type == _TEMPORARY:
                bytes[owner] = max(bytes[owner], bytes[tensor])
        return Tensors.of(
            places,
            bytes,
            owners,
            [self._kind(places[owner][0]) for owner in owners],
        )

    def _scratch(self, node: int, slot: int) -> bool:
        last = self.first[node] + slot + 1 == self.first[node + 1]
        return bool(self.nodes[node].scratch) and last

    def _bytes(self, node: int, slot: int) -> int:
        found = self.nodes[node]
        if self._scratch(node, slot):
            return found.scratch or 0
        if slot < len(found.outputs):
            return found.outputs[slot].bytes
        return found.output_bytes if slot == 0 and not found.outputs else 0

    def _alias(self, node: int, slot: int) -> int:
        """Return the tensor whose memory this tensor shares, as far as the node shows it."""
        found = self.nodes[node]
        given: int | None = None
        if self._scratch(node, slot):
            pass
        elif found.outputs:
            if slot < len(found.outputs):
                out = found.outputs[slot]
                given = 0 if out.dtype.endswith(_REFERENCE) and found.inputs else out.alias
        elif _family(found) in VIEWS and found.inputs:
            given = 0
        return self.first[node] + slot if given is None else self.read(node)[given]

    def _kind(self, node: int) -> Kind:
        """Return the kind of a node's tensors that are not aliases."""
        found = self.nodes[node]
        if kind := _KINDS.get(_family(found)):
            return kind
        # it is nobody's that is known: of a variable, or of another graph
        view = not found.outputs and _family(found) in VIEWS
        return Kind.ARGUMENT if view else Kind.RESULT


def _family(node: Node) -> str:
    return node.type.lstrip("_")


def _owners(alias: Sequence[int]) -> list[int]:
    """Return by tensor the final owner of its memory; for aliases in a circle, one of them."""
    found: dict[int, int] = {}
    for start in range(len(alias)):
        path: dict[int, None] = {}
        tensor = start
        while tensor not in found and tensor not in path:
            path[tensor] = None
            tensor = alias[tensor]
        found.update(dict.fromkeys(path, found.get(tensor, tensor)))
    return [found[tensor] for tensor in range(len(alias))]
