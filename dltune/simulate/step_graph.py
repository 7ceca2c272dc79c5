"""Graph of a training step, for any framework: nodes, tensors, orders of nodes, lives of tensors.

A *tensor* is what a node gives out at one of its output slots. Nodes read tensors (data edges) and
can wait for nodes (control edges). The ways back of a loop are edges, too, but nothing waits for
them: the remaining graph has no cycle.
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dltune.analysis.keys import VIEWS
from dltune.base.errors import UsageError
from dltune.schemas.profile import Node, Step

Integers = NDArray[np.int32]
Amounts = NDArray[np.int64]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Kinds = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class CSR:
    """Rows of integers of different lengths, such as the edges of a graph, in two arrays.

    Row i is `items[offsets[i]:offsets[i + 1]]` (compressed sparse rows, without values).
    `offsets`: int32, one more than there are rows. `items`: int32.
    """

    offsets: Integers
    items: Integers

    @classmethod
    def of(cls, rows: Iterable[Iterable[int]]) -> CSR:
        found = [tuple(row) for row in rows]
        offsets = np.zeros(len(found) + 1, np.int32)
        np.cumsum([len(row) for row in found], out=offsets[1:])
        items = np.fromiter((item for row in found for item in row), np.int32, offsets[-1])
        return cls(offsets, items)

    @classmethod
    def grouped(cls, row: Integers, item: Integers, rows: int) -> CSR:
        """From pairs; a row's items keep the order that they have here."""
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
        return cls(offsets, item[np.argsort(row, kind="stable")].astype(np.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Integers:
        return self.items[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.lists)

    @functools.cached_property
    def lists(self) -> list[list[int]]:
        """The rows for loops in Python, which are slow on arrays."""
        items, offsets = self.items.tolist(), self.offsets.tolist()
        return [items[begin:end] for begin, end in itertools.pairwise(offsets)]

    @functools.cached_property
    def row(self) -> Integers:
        """Of each item, the row that it stands in."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))

    def distinct(self) -> CSR:
        """Each item of a row once, where it stands first."""
        pairs = self.row.astype(np.int64) << 32 | self.items
        first = np.sort(np.unique(pairs, return_index=True)[1])
        return CSR.grouped(self.row[first], self.items[first], len(self))

    def transposed(self, rows: int) -> CSR:
        """Row j holds, in rising order, the rows that hold j."""
        return CSR.grouped(self.items, self.row, rows)


class Kind(enum.IntEnum):
    """What a tensor is. `ARGUMENT`: whoever runs the step hands it in."""

    RESULT = 0
    VARIABLE = 1
    CONSTANT = 2
    ARGUMENT = 3


@dataclass(frozen=True, eq=False)
class Tensors:
    """Arrays over the tensors of a graph. `producer`: the node that gives one out, at `slot`.

    `bytes`: int64. `alias`: the tensor whose memory it is, itself where it has memory of its own.
    `kind`: of `Kind`; all but results are there before the step and after it.
    """

    producer: Integers
    slot: Integers
    bytes: Amounts
    alias: Integers
    kind: Kinds

    def __len__(self) -> int:
        return len(self.producer)

    @classmethod
    def of(
        cls,
        places: Iterable[tuple[int, int]],
        bytes: Sequence[int],
        alias: Sequence[int] | None = None,
        kind: Sequence[Kind] | None = None,
    ) -> Tensors:
        """`places`: (producer, slot) of each. Without `alias` each has memory of its own, without
        `kind` all are results."""
        found = list(places)
        own = range(len(found)) if alias is None else alias
        kinds = [Kind.RESULT] * len(found) if kind is None else kind
        return cls(
            np.array([producer for producer, _ in found], np.int32),
            np.array([slot for _, slot in found], np.int32),
            np.array(bytes, np.int64),
            np.array(own, np.int32),
            np.array(kinds, np.uint8),
        )


@dataclass(frozen=True, eq=False)
class StepGraph:
    """A step of training as a graph.

    `names` of the nodes, for people; `op`: per node the index of its op, -1 for none that takes
    time; `runs`: how often an execution runs it (0: not in this one, above 1: in a loop).

    `reads`: per node the tensors at its inputs, by input slot. `control`: per node those that it
    waits for besides. `back`: per node whether its outputs flow back in a loop.
    """

    names: Sequence[str]
    op: Integers
    runs: Numbers
    tensors: Tensors
    reads: CSR
    control: CSR
    back: Flags

    def __len__(self) -> int:
        return len(self.names)

    @functools.cached_property
    def predecessors(self) -> CSR:
        """Per node those that must have ended before it starts: of its inputs by slot, then by
        control edges; each once."""
        row = np.concatenate((self.reads.row, self.control.row))
        before = np.concatenate((self.tensors.producer[self.reads.items], self.control.items))
        forward = ~self.back[before]
        return CSR.grouped(row[forward], before[forward], len(self)).distinct()

    @functools.cached_property
    def successors(self) -> CSR:
        """Per node those that wait for it, in rising order."""
        return self.predecessors.transposed(len(self))


# Orders of a graph's nodes, and the nodes before them


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


# Lives of tensors


@dataclass(frozen=True, eq=False)
class Lives:
    """Arrays over the tensors for which an execution took memory: from the start of the node that
    gave one out to the end of the last one that reads it, or an alias of it."""

    tensor: Integers
    begin: Amounts
    end: Amounts
    bytes: Amounts


def lives(graph: StepGraph, start: Amounts, end: Amounts) -> Lives:
    """Return from when to when the memory of each tensor is needed (SuperNeurons, section 3.2).

    The result is an estimate: memory that kernels take while they run is not in a graph, nor are
    outputs written over an input where the graph does not show whose memory a tensor is.

    `start` and `end`: per node, in any unit; negative for a node that did not run.
    """
    tensors = graph.tensors
    until = np.full(len(tensors), -1, np.int64)
    ran = (start >= 0) & (end >= 0)
    born = ran[tensors.producer]
    owned = (tensors.alias == np.arange(len(tensors))) & born & (tensors.kind == Kind.RESULT)
    reader, read = graph.reads.row, graph.reads.items
    np.maximum.at(until, tensors.alias[read[ran[reader]]], end[reader[ran[reader]]])
    np.maximum.at(until, np.flatnonzero(owned), end[tensors.producer[owned]])
    kept = np.flatnonzero(owned).astype(np.int32)
    return Lives(kept, start[tensors.producer[kept]], until[kept], tensors.bytes[kept])


def peak(found: Lives) -> tuple[int, int, list[int]]:
    """The most bytes that are needed at once, the moment from which on they are, and the tensors,
    the largest first. Memory that ends at a moment is free for what begins then."""
    real = found.end > found.begin
    moments = np.concatenate((found.end[real], found.begin[real]))
    change = np.concatenate((-found.bytes[real], found.bytes[real]))
    order = np.argsort(moments, kind="stable")
    level = np.cumsum(change[order])
    if not len(level):
        return 0, 0, []
    at = int(np.argmax(level))
    moment = int(moments[order][at])
    held = np.flatnonzero(real & (found.begin <= moment) & (found.end > moment))
    largest = held[np.argsort(-found.bytes[held], kind="stable")]
    return int(level[at]), moment, found.tensor[largest].tolist()


# The graph of a profiled step

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
