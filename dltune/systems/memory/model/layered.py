"""SuperNeurons' model of a training step, by layers: tensors, times, recomputation, workspaces.

A step runs forwards along a route and backwards along the same route, with the tensors that cuDNN's
layers read and write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dltune.simulate.networks import FLOAT, Algorithm, Device, Layer, Network, algorithms, fastest
from dltune.simulate.step_graph import CSR, Numbers, StepGraph, Tensors
from dltune.systems.memory.model.schedule import Step

# kinds whose gradient reads the layer's input, and its output
_INPUT = frozenset({"conv", "dense", "batch_norm", "relu", "lrn", "max_pool", "avg_pool"})
_OUTPUT = frozenset({"relu", "lrn", "max_pool", "avg_pool", "dropout", "softmax"})
_IN_PLACE = frozenset({"relu", "lrn", "softmax"})


@dataclass(frozen=True, eq=False)
class LayerStep:
    """`route`: the layers in the order in which they run. Node k of the graph is the k-th one's
    forward part, and node `2 * len(route) - 1 - k` its backward part. `given`: by layer the tensors
    that it gives out, one for each reader of a fork. `input`: bytes of the batch, which is no
    tensor of the graph.
    """

    network: Network
    route: Sequence[int]
    graph: StepGraph
    given: Mapping[int, Sequence[int]]
    input: int

    def backward(self, node: int) -> int:
        """The backward part of a layer whose forward part this is, and the other way round."""
        return 2 * len(self.route) - 1 - node

    @property
    def batch(self) -> int:
        return self.input // (FLOAT * self.network.layers[0].size)

    @property
    def baseline(self) -> int:
        """Return the bytes where each tensor has separate memory for the whole step."""
        tensors = self.graph.tensors
        own = tensors.alias == np.arange(len(tensors))
        return self.input + int(tensors.bytes[own].sum())


def route(network: Network) -> list[int]:
    """The layers behind the input: depth first, but each after all that it reads (SuperNeurons,
    Algorithm 1)."""
    readers = _readers(network)
    waits = [len(set(layer.inputs)) for layer in network.layers]
    found: list[int] = []
    stack = readers[0][::-1]
    while stack:
        number = stack.pop()
        waits[number] -= 1
        if not waits[number]:
            found.append(number)
            stack += readers[number][::-1]
    return found


def layer_step(network: Network, batch: int) -> LayerStep:
    """Return a step of training. Raises ValueError when several layers read one that is no fork.

    Gradients of rectifiers, normalisation across channels and softmax overwrite what they read. The
    gradient of a sum for its first branch does the same. All others have separate memory.
    Parameters and workspaces are not counted. These rules give the figures of the paper's section
    4.1.1.
    """
    expansion = _Expansion(network, batch)
    expansion.forward()
    expansion.backward()
    return expansion.step()


class _Expansion:
    """Tensors are known by their numbers, and by the layers that give them out and read them."""

    def __init__(self, network: Network, batch: int) -> None:
        self.network, self.batch = network, batch
        self.route = route(network)
        self.readers = _readers(network)
        self.names: list[str] = []
        self.reads: list[list[int]] = []
        self.places: list[tuple[int, int]] = []
        self.bytes: list[int] = []
        self.alias: list[int] = []
        self.given: dict[int, list[int]] = {}
        self.between: dict[tuple[int, int], int] = {}
        for layer, readers in zip(network.layers, self.readers, strict=True):
            if len(readers) > 1 and layer.kind not in ("fork", "input"):
                raise ValueError(f"{len(readers)} layers read {layer.name}, which is no fork")

    def forward(self) -> None:
        for number in self.route:
            layer = self.network.layers[number]
            self._node(layer.name, self._inputs(number))
            readers = self.readers[number] or [-1]
            copies = readers if layer.kind == "fork" else readers[:1]
            self.given[number] = [self._tensor(slot, layer) for slot in range(len(copies))]
            self.between.update(
                ((number, reader), tensor)
                for reader, tensor in zip(copies, self.given[number], strict=True)
            )

    def backward(self) -> None:
        gradient: dict[tuple[int, int], int] = {}
        for number in reversed(self.route):
            layer = self.network.layers[number]
            own = [gradient[number, reader] for reader in self.readers[number]]
            reads = list(own)
            reads += self._inputs(number) if layer.kind in _INPUT else []
            reads += self.given[number] if layer.kind in _OUTPUT else []
            self._node(f"{layer.name} backward", reads)
            inputs = [one for one in layer.inputs if one]
            for slot, one in enumerate(inputs):
                first = slot == 0 and layer.kind in ("add", "fork")
                over = (own or self.given[number])[0]
                view = over if first or layer.kind in _IN_PLACE else None
                gradient[one, number] = self._tensor(slot, self.network.layers[one], view)

    def step(self) -> LayerStep:
        count = len(self.names)
        graph = StepGraph(
            self.names,
            np.arange(count, dtype=np.int32),
            np.ones(count),
            Tensors.of(self.places, self.bytes, self.alias),
            CSR.of(self.reads),
            CSR.of(() for _ in range(count)),
            np.zeros(count, np.bool_),
        )
        input = FLOAT * self.batch * self.network.layers[0].size
        return LayerStep(self.network, self.route, graph, self.given, input)

    def _inputs(self, number: int) -> list[int]:
        return [self.between[one, number] for one in self.network.layers[number].inputs if one]

    def _node(self, name: str, reads: Sequence[int]) -> None:
        self.names.append(name)
        self.reads.append(list(reads))

    def _tensor(self, slot: int, like: Layer, view: int | None = None) -> int:
        """Add a tensor of the last node; it is as large as a layer's output."""
        tensor = len(self.places)
        self.places.append((len(self.names) - 1, slot))
        self.bytes.append(FLOAT * self.batch * like.size)
        self.alias.append(tensor if view is None else self.alias[view])
        return tensor


def _readers(network: Network) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in network.layers]
    for number, layer in enumerate(network.layers):
        for one in dict.fromkeys(layer.inputs):
            found[one].append(number)
    return found


def layer_seconds(step: LayerStep, device: Device) -> Numbers:
    """By node: as long as its operations or its bytes take, whichever is more. Its bytes: all that
    it reads and gives out, parameters and their gradients.

    The time of each part of a layered step follows from its operations and bytes.
    """
    graph, network = step.graph, step.network
    sizes: list[int] = graph.tensors.bytes.tolist()
    flops, moved = np.zeros(len(graph)), np.zeros(len(graph))
    for tensor, node in enumerate(graph.tensors.producer.tolist()):
        moved[node] += sizes[tensor]
    for node, number in enumerate(step.route):
        layer, back = network.layers[number], step.backward(node)
        flops[node] = step.batch * network.forward(layer, training=True)
        flops[back] = step.batch * network.backward(layer)
        parameters = sum(one.bytes for one in layer.parameters)
        moved[[node, back]] += parameters, 2 * parameters
    for node, row in enumerate(graph.reads.lists):
        moved[node] += sum(sizes[tensor] for tensor in row)
    return np.maximum(flops / device.flops, moved / device.bandwidth) / device.share


_STRUCTURE = frozenset({"fork", "add", "concat"})
_CHECKPOINTS = _STRUCTURE | {"conv", "dense", "softmax"}

Strategy = Literal["keep", "speed", "memory", "cost"]


@dataclass(frozen=True)
class Segment:
    """A checkpoint and the layers behind it, in order; nodes of their forward parts."""

    checkpoint: int
    members: tuple[int, ...]


def segments(step: LayerStep) -> list[Segment]:
    """Return the segments with members, in the order of their checkpoints. The tensor that a fork
    copies is kept, too: branches part there."""
    layers = step.network.layers
    node = {number: at for at, number in enumerate(step.route)}
    forked = {one for layer in layers if layer.kind == "fork" for one in layer.inputs}
    behind: dict[int, list[int]] = {}  # by layer, the members of its segment so far
    found: dict[int, list[int]] = {}
    for number in step.route:
        layer = layers[number]
        if layer.kind in _CHECKPOINTS or number in forked:
            if layer.kind in _CHECKPOINTS:
                behind[number] = found[node[number]] = []
        elif (before := behind.get(layer.inputs[0])) is not None:
            before.append(node[number])
            behind[number] = before
    return [Segment(at, tuple(members)) for at, members in found.items() if members]


def expensive(step: LayerStep, found: Sequence[Segment]) -> set[int]:
    """The checkpoints of segments that take more memory than any layer alone, once all that is in
    them has been computed again: their results are not worth keeping together (cost-aware
    recomputation, step 2)."""
    largest = _largest(step)
    return {one.checkpoint for one in found if _together(step, one) > largest}


def schedule_recomputation(step: LayerStep, strategy: Strategy, *, offload: bool) -> list[Step]:
    """`keep`: nothing is computed again. `speed`: a segment once, when the first of its results is
    needed. `memory`: the inputs of a layer's gradient, each time from the checkpoint on. `cost`: as
    `memory` for expensive segments alone.

    `offload`: outputs of convolutions leave for another tier and come back when the gradients reach
    their segment (section 3.3.1). A convolution in the paper's sense is no dense layer.

    Results that are cheap to compute are given up and computed again (SuperNeurons, section 3.4).
    *Checkpoints* are kept: convolutions, dense layers, and where branches part or meet. The layers
    from one checkpoint to the next are a segment.
    """
    found = segments(step)
    each_time: Collection[int] = ()
    if strategy == "memory":
        each_time = {one.checkpoint for one in found}
    elif strategy == "cost":
        each_time = expensive(step, found)
    return list(_Schedule(step, found, each_time, strategy != "keep", offload).steps())


class _Schedule:
    """`away`: tensors in another tier that have not come back yet. `there`: by checkpoint, the
    members of its segment whose results are in memory at least until the gradient of their own."""

    def __init__(
        self,
        step: LayerStep,
        found: Sequence[Segment],
        each_time: Collection[int],
        recompute: bool,
        offload: bool,
    ) -> None:
        self.step, self.each_time, self.recompute = step, each_time, recompute
        self.reads = step.graph.reads.lists
        self.within = {member: one for one in found for member in one.members}
        self.outputs = [step.given[number] for number in step.route]
        self.producer = {tensor: node for node, row in enumerate(self.outputs) for tensor in row}
        leaves = _offloaded(step) if offload else ()
        self.away = {tensor for node in leaves for tensor in self.outputs[node]}
        self.there: dict[int, set[int]] = {one.checkpoint: set() for one in found}

    def steps(self) -> Iterator[Step]:
        count = len(self.step.route)
        for node in range(count):
            yield Step(node)
        for node in reversed(range(count)):
            backward = self.step.backward(node)
            if self.recompute:
                needed = {self.producer.get(tensor, -1) for tensor in self.reads[backward]}
                needed.add(node)  # as published: also where its own gradient does not read it
                for segment in {self.within[one] for one in needed & self.within.keys()}:
                    yield from self._again(segment, needed)
            yield self._run(backward, self.within.get(node))

    def _again(self, segment: Segment, needed: set[int]) -> Iterator[Step]:
        """From the checkpoint to the last member that is needed and not there."""
        there = self.there[segment.checkpoint]
        missing = needed.intersection(segment.members) - there
        if not missing:
            return
        upto = segment.members[: segment.members.index(max(missing)) + 1]
        for node in upto:
            yield self._run(node, segment)
        there.update(missing if segment.checkpoint in self.each_time else upto)

    def _run(self, node: int, segment: Segment | None) -> Step:
        """Return the node's step: its inputs come back, and the checkpoint of the segment that is
        gone through."""
        wanted = set(self.reads[node])
        if segment is not None:
            wanted.update(self.outputs[segment.checkpoint])
        back = sorted(wanted & self.away)
        self.away.difference_update(back)
        return Step(node, tuple(back))


def _offloaded(step: LayerStep) -> list[int]:
    """The nodes whose outputs leave for another tier."""
    layers = step.network.layers
    return [node for node, number in enumerate(step.route) if layers[number].kind == "conv"]


def _largest(step: LayerStep) -> int:
    """Return l_peak: the most bytes of a layer's inputs and outputs and of the gradients to both.
    Where branches part or meet nothing is computed."""
    graph, layers = step.graph, step.network.layers
    sizes: list[int] = graph.tensors.bytes.tolist()
    return max(
        2 * sum(sizes[tensor] for tensor in (*graph.reads.lists[node], *step.given[number]))
        for node, number in enumerate(step.route)
        if layers[number].kind not in _STRUCTURE
    )


def _together(step: LayerStep, segment: Segment) -> int:
    """Bytes of a segment's results, and of the gradients to what its last layer reads and gives."""
    sizes: list[int] = step.graph.tensors.bytes.tolist()
    outputs = [
        sum(sizes[one] for one in step.given[step.route[node]])
        for node in (segment.checkpoint, *segment.members)
    ]
    return sum(outputs) + sum(outputs[-2:])


class Work(NamedTuple):
    """A step of the schedule. `workspace` in bytes, the most that one of its `passes` takes; other
    layers than convolutions have none."""

    seconds: float
    workspace: int = 0
    passes: tuple[Algorithm, ...] = ()


def provisioned(
    step: LayerStep, steps: Sequence[Step], device: Device, free: Sequence[int]
) -> list[Work]:
    """`free`: by step of the schedule the bytes that tensors leave. A gradient is two passes, to
    the layer's inputs and to its weights, that of the first layer one.

    Convolutions take the memory that is left at each step for their workspaces (SuperNeurons,
    section 3.5): tensors first, then the fastest algorithm that has room.
    """
    network, half = step.network, len(step.route)
    plain = layer_seconds(step, device).tolist()
    found = []
    for (node, _), room in zip(steps, free, strict=True):
        forward = node < half
        layer = network.layers[step.route[node if forward else step.backward(node)]]
        if layer.kind != "conv":
            found.append(Work(plain[node]))
            continue
        best = fastest(algorithms(network, layer, step.batch), room, device)
        count = 1 if forward else 1 + network.learns[layer.inputs[0]]
        found.append(Work(count * best.seconds(device), best.workspace, (best,) * count))
    return found
