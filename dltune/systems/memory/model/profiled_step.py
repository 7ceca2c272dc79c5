"""Profiled steps, ready for their memory to be planned, also with another number of examples."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dltune.analysis.keys import VIEWS
from dltune.profile.standalone import batch_of, channels_of, inputs_of
from dltune.schemas.graph import TensorType
from dltune.schemas.profile import Node, Profile, Step
from dltune.simulate import step_graph
from dltune.simulate.step_graph import Flags, Kind, StepGraph, Tensors
from dltune.systems.memory.model.schedule import Step as Run

# what does not give the same a second time, or does more than give something, by parts of its type
_ONCE = (
    "Variable",
    "Assign",
    "Apply",
    "Scatter",
    "ResourceGather",
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
    "Xla",
)
# of these the stateless ones give the same
_DRAWN = ("Random", "Multinomial", "TruncatedNormal")
READ = "ReadVariableOp"
_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStrided")
TOUCHES = (*_WRITES, "ResourceGather", "RngReadAndSkip", "StatefulUniform")
# of variables of the old kind, which are written where all that has read them sees it
REFERENCE = ("Variable", "VariableV2")
_WRITES_THERE = ("Assign", "Apply", "Scatter", "Sparse", "Count", "StridedSliceAssign")


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """`order`: the nodes as they began in the sampled execution. By node `seconds` that it took
    there, and `pure`, whether it gives the same a second time and does nothing else. `written`: as
    `schedule.lives` reads it; `in_place`: by node that writes a variable of the old kind, its
    tensor. `forwarded`: as `schedule.lives` reads it, where one of the step's nodes of the type has
    written over its input. `in_turn`: of each variable the nodes that touch it, which keep their
    order. `run`: how it runs what is selected, where that is not in the order of the selection."""

    graph: StepGraph
    order: Sequence[int]
    seconds: Sequence[float]
    pure: Sequence[bool]
    written: Mapping[int, Collection[int]]
    in_place: Mapping[int, Collection[int]]
    forwarded: Mapping[int, Collection[int]]
    in_turn: Sequence[Sequence[int]]
    run: Callable[[Sequence[Run]], Sequence[Run]] = lambda steps: steps

    @property
    def writes(self) -> Mapping[int, Collection[int]]:
        return {**self.written, **self.in_place}

    @functools.cached_property
    def again(self) -> list[int]:
        """By node as `selection.select` reads it: what reads a variable may run again until that is
        written, for a value that is read later takes memory of its own."""
        until = [len(self.order)] * len(self.graph.tensors)
        for at, node in reversed(list(enumerate(self.order))):
            for tensor in self.writes.get(node, ()):
                until[tensor] = at
        alias = self.graph.tensors.alias.tolist()
        last = [min(until[tensor], until[alias[tensor]]) for tensor in range(len(until))]
        return [
            min((last[tensor] for tensor in row), default=len(self.order)) if pure else 0
            for pure, row in zip(self.pure, self.graph.reads.lists, strict=True)
        ]


def measured(step: Step) -> MeasuredStep:
    """Raises UsageError when ops wait for each other."""
    graph = _without_copies(step_graph.acyclic(step), step.nodes)
    seconds = [node.seconds for node in step.nodes]
    pure = [not node.stateful and _pure(node.type) for node in step.nodes]
    return MeasuredStep(
        graph,
        _order(graph, step.nodes),
        seconds,
        pure,
        _written(graph, step.nodes),
        _written_in_place(graph, step.nodes),
        _forwarded(graph, step.nodes),
        _in_turn(graph, step.nodes),
    )


def _without_copies(graph: StepGraph, nodes: Sequence[Node]) -> StepGraph:
    """Return the graph without copies. A node that writes a variable has taken new memory for it
    where somebody still held the value, in the order that was measured: `written` says where
    somebody will."""
    tensors = graph.tensors
    bytes = tensors.bytes.copy()
    for tensor, node in enumerate(tensors.producer.tolist()):
        if nodes[node].type.startswith(_WRITES):
            bytes[tensor] = 0
    return replace(graph, tensors=replace(tensors, bytes=bytes))


def _order(graph: StepGraph, nodes: Sequence[Node]) -> list[int]:
    """Return the nodes as they began; those without a known start, as soon as they could."""
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
        if nodes[node].type.endswith(READ) and nodes[node].inputs:
            values.setdefault(nodes[node].inputs[0], []).append(tensor)
    found = {
        node: [tensor for one in writer.inputs for tensor in values.get(one, ())]
        for node, writer in enumerate(nodes)
        if writer.type.startswith(_WRITES)
    }
    return {node: tensors for node, tensors in found.items() if tensors}


def _written_in_place(graph: StepGraph, nodes: Sequence[Node]) -> dict[int, list[int]]:
    alias, producer = graph.tensors.alias.tolist(), graph.tensors.producer.tolist()
    found = {
        node: [alias[tensor] for tensor in row if nodes[producer[alias[tensor]]].type in REFERENCE]
        for node, row in enumerate(graph.reads.lists)
        if nodes[node].type.startswith(_WRITES_THERE)
    }
    return {node: tensors for node, tensors in found.items() if tensors}


def _in_turn(graph: StepGraph, nodes: Sequence[Node]) -> list[list[int]]:
    """Return, for a resource, all nodes that read its handle; for a variable of the old kind, all
    that read its memory."""
    alias, producer = graph.tensors.alias.tolist(), graph.tensors.producer.tolist()
    handles = {
        node.inputs[0]
        for node in nodes
        if node.inputs and (node.type.endswith(READ) or node.type.startswith(TOUCHES))
    }
    found: dict[int, list[int]] = {}
    for node, row in enumerate(graph.reads.lists):
        by_reference = {producer[alias[tensor]] for tensor in row}
        touched = {one for one in by_reference if nodes[one].type in REFERENCE}
        for one in touched | (handles & set(nodes[node].inputs)):
            found.setdefault(one, []).append(node)
    return [touching for touching in found.values() if len(touching) > 1]


def _forwarded(graph: StepGraph, nodes: Sequence[Node]) -> dict[int, list[int]]:
    types: dict[str, set[int]] = {}
    for node in nodes:
        if node.type.lstrip("_") not in VIEWS:
            types.setdefault(node.type, set()).update(
                tensor.alias for tensor in node.outputs if tensor.alias is not None
            )
    bytes = graph.tensors.bytes.tolist()
    kinds, slots = graph.tensors.kind.tolist(), graph.tensors.slot.tolist()
    found: dict[int, list[int]] = {}
    for tensor, node in enumerate(graph.tensors.producer.tolist()):
        row = graph.reads.lists[node]
        if slots[tensor] < len(nodes[node].outputs) and kinds[tensor] == Kind.RESULT:
            inputs = sorted(at for at in types.get(nodes[node].type, ()) if at < len(row))
            if over := [row[at] for at in inputs if bytes[row[at]] == bytes[tensor]]:
                found[tensor] = over
    return found


def _pure(type: str) -> bool:
    if any(part in type for part in _ONCE):
        return False
    return type.startswith("Stateless") or not any(part in type for part in _DRAWN)


# what gives a step its examples, by type
_GIVEN = ("IteratorGetNext", "Arg", "Placeholder")


@dataclass(frozen=True, eq=False)
class Batched:
    """A step as measured with `batch` examples. `grows`: by tensor, whether it holds examples.

    A tensor of examples has the batch, or a multiple of it, as its first dimension, according to
    the keys of the ops that read it. Its bytes grow with the batch, and so does the time of the ops
    that read it or give it out.
    """

    step: MeasuredStep
    batch: int
    grows: Flags

    def of(self, batch: int) -> MeasuredStep:
        """The step with so many examples."""
        graph, times = self.step.graph, batch / self.batch
        tensors = graph.tensors
        bytes = np.where(self.grows, np.ceil(tensors.bytes * times), tensors.bytes)
        touched = np.zeros(len(graph), np.bool_)
        touched[tensors.producer[self.grows]] = True
        touched[graph.reads.row[self.grows[graph.reads.items]]] = True
        return replace(
            self.step,
            graph=replace(graph, tensors=replace(tensors, bytes=bytes.astype(np.int64))),
            seconds=(np.array(self.step.seconds) * np.where(touched, times, 1.0)).tolist(),
        )


def batched(profile: Profile, step: Step, found: MeasuredStep) -> Batched:
    """Raises UsageError when no op of the step has a batch dimension."""
    ops = [None if node.op is None else profile.ops[node.op] for node in step.nodes]
    timed = [op for op in ops if op is not None]
    tensors = found.graph.tensors
    shapes: dict[int, TensorType] = {}  # by tensor, from its readers' keys
    for op, row in zip(ops, found.graph.reads.lists, strict=True):
        if op is not None:
            shapes.update(zip(row, inputs_of(op.key), strict=False))
    batch, channels = _batch(step, shapes, tensors) or batch_of(timed), channels_of(timed)
    parameters = {
        shape.shape for tensor, shape in shapes.items() if tensors.kind[tensor] == Kind.VARIABLE
    }
    grows = np.zeros(len(tensors), np.bool_)
    for tensor, shape in shapes.items():
        grows[tensor] = _holds_examples(shape, batch, channels) and shape.shape not in parameters
    # a kernel's further memory, its node's last tensor, grows with its inputs
    last = np.bincount(tensors.producer, minlength=len(ops)).cumsum() - 1
    for number, row in enumerate(found.graph.reads.lists):
        if step.nodes[number].scratch and grows[row].any():
            grows[last[number]] = True
    return Batched(found, batch, grows)


def _batch(step: Step, shapes: Mapping[int, TensorType], tensors: Tensors) -> int | None:
    """Return the first dimension of most of the step's inputs."""
    given = Counter(
        shape.shape[0]
        for tensor, shape in shapes.items()
        if shape.shape and step.nodes[tensors.producer[tensor]].type.lstrip("_") in _GIVEN
    )
    return max(given, key=given.__getitem__, default=None)


def _holds_examples(tensor: TensorType, batch: int, channels: frozenset[int]) -> bool:
    if not tensor.shape or not tensor.shape[0] or tensor.shape[0] % batch:
        return False
    return (
        len(tensor.shape) > 1 or tensor.dtype.startswith("int") or tensor.shape[0] not in channels
    )
