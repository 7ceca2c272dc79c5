"""Results that are cheap to compute are given up and computed again (SuperNeurons, section 3.4).

*Checkpoints* are kept: convolutions, dense layers, and where branches part or meet. The layers from
one to the next are a segment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dltune.systems.memory.model.layered import LayerStep
from dltune.systems.memory.model.schedule import Step

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


def schedule(step: LayerStep, strategy: Strategy, *, offload: bool) -> list[Step]:
    """`keep`: nothing is computed again. `speed`: a segment once, when the first of its results is
    needed. `memory`: the inputs of a layer's gradient, each time from the checkpoint on. `cost`: as
    `memory` for expensive segments alone.

    `offload`: outputs of convolutions leave for another tier and come back when the gradients reach
    their segment (section 3.3.1). A convolution in the paper's sense is no dense layer.
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
