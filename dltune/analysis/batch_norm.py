"""Batch norm in pieces: layers that a graph computes by plain ops, though there is a fused kernel.

Keras 3 writes a layer as a mean, a mean of squared differences, a reciprocal root, products and
sums, and TensorFlow differentiates each of them. They are known by how they are connected and by
their shapes, whatever the nodes are called: layers that normalise each example (layer norm, group
norm) have the same ops, but their moments are along other axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dltune.analysis.keys import Key, parse
from dltune.schemas.graph import TensorType
from dltune.schemas.profile import Op, Step

_VIEWS = frozenset({"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient"})
# on one number a channel
_CHANNEL = _VIEWS | {"Add", "Maximum", "Mul", "Neg", "RealDiv", "Relu", "Rsqrt", "RsqrtGrad", "Sub"}
_SUMS = frozenset({"Add", "AddN"})
_REDUCTIONS = frozenset({"Mean", "Sum"})
_SQUARES = frozenset({"Square", "SquaredDifference"})
_SPREAD = frozenset({"BroadcastTo", "Tile"})

# Roles of a node in a layer. `input` and `gradient`: the layer's input in each of the two passes.
# `channel`: a number a channel. With the input's size: `spread`, the same in each channel;
# `product`; `sum`, with which a pass ends.
_Role = Literal["input", "gradient", "channel", "spread", "product", "sum"]
_WITHIN = frozenset({"channel", "spread", "product", "sum"})


@dataclass(frozen=True)
class Pieces:
    """A layer: the `nodes` that a fused kernel would replace, by their index in the step.

    `bytes`: the size of its input. `gradient`: True if its gradient is among the nodes.
    """

    nodes: frozenset[int]
    bytes: int
    gradient: bool


def pieces(step: Step, ops: Sequence[Op]) -> list[Pieces]:
    """The layers that the step computes so, with the moments of its batch."""
    graph = _Graph(step, ops)
    found = map(graph.layer, range(len(step.nodes)))
    return [layer for layer in found if layer]


class _Graph:
    def __init__(self, step: Step, ops: Sequence[Op]) -> None:
        self.nodes = step.nodes
        keys = [parse(op) for op in ops]
        self._keys = [None if node.op is None else keys[node.op] for node in step.nodes]
        self.readers: list[list[int]] = [[] for _ in step.nodes]
        for index, node in enumerate(step.nodes):
            for given in node.inputs:
                self.readers[given].append(index)

    def key(self, index: int, families: frozenset[str]) -> Key | None:
        """The node's key, if its op is of one of these families and its inputs are known."""
        key = self._keys[index]
        if key and _family(key) in families and len(key.inputs) == len(self.nodes[index].inputs):
            return key
        return None

    def given(self, index: int, key: Key) -> Iterator[tuple[int, TensorType]]:
        return zip(self.nodes[index].inputs, key.inputs, strict=True)

    def layer(self, root: int) -> Pieces | None:
        """The layer whose reciprocal root of a variance this node is; None: it is of none."""
        if not self.key(root, frozenset({"Rsqrt"})):
            return None
        channels = self.nodes[root].output_bytes
        for variance in self._before(root, channels):
            squares = self.nodes[variance].inputs[0]
            key = self.key(squares, _SQUARES)
            for source, tensor in self.given(squares, key) if key else ():
                means = [
                    reader
                    for reader in self.readers[source]
                    if self.key(reader, frozenset({"Mean"}))
                    and self.nodes[reader].output_bytes == channels
                ]
                if means and _fusible(tensor, channels):
                    return _Layer(self, source, tensor, channels).pieces(
                        root, variance, squares, *means
                    )
        return None

    def _before(self, root: int, channels: int) -> list[int]:
        """The means that the root comes from, through nodes of one number a channel."""
        found, seen = [], {root}
        left = [root]
        while left:
            for before in self.nodes[left.pop()].inputs:
                if before in seen or self.nodes[before].output_bytes != channels:
                    continue
                seen.add(before)
                if self.key(before, frozenset({"Mean"})):
                    found.append(before)
                elif self.key(before, _CHANNEL):
                    left.append(before)
        return found


def _fusible(tensor: TensorType, channels: int) -> bool:
    """True if the kernel takes it: there are one to three extents other than batch and channels."""
    return len(tensor.shape) in (3, 4, 5) and tensor.bytes > tensor.shape[0] * channels


class _Layer:
    """Grows from the moments of `source`, node by node, along those that read a known node."""

    def __init__(self, graph: _Graph, source: int, tensor: TensorType, channels: int) -> None:
        self._graph = graph
        self._tensor = tensor
        self._channels = channels
        self._roles: dict[int, _Role] = {source: "input"}
        self._left = [source]

    def pieces(self, root: int, variance: int, squares: int, *means: int) -> Pieces | None:
        for index in (root, variance, *means):
            self._is(index, "channel")
        self._is(squares, "product")
        while self._left:
            for reader in self._graph.readers[self._left.pop()]:
                if reader not in self._roles and (role := self._role(reader)):
                    self._is(reader, role)
        if not any(map(self._applies, self._roles)):
            return None
        within = {index for index, role in self._roles.items() if role in _WITHIN}
        return Pieces(
            frozenset(filter(self._matters, within)),
            self._tensor.bytes,
            "gradient" in self._roles.values(),
        )

    def _is(self, index: int, role: _Role) -> None:
        self._roles[index] = role
        self._left.append(index)

    def _role(self, index: int) -> _Role | None:
        """Role of a node that reads a known node; None: the layer ends before it."""
        families = _CHANNEL | _SUMS | _REDUCTIONS | _SPREAD | _SQUARES
        key = self._graph.key(index, families)
        if key is None:
            return None
        family, bytes_ = _family(key), self._graph.nodes[index].output_bytes
        roles = {node: self._roles.get(node) for node, _ in self._graph.given(index, key)}
        known = set(roles.values())
        if bytes_ == self._channels:
            if family in _REDUCTIONS:
                full = key.inputs[0].shape == self._tensor.shape
                first = roles[self._graph.nodes[index].inputs[0]]
                return "channel" if full and first in ("gradient", "product") else None
            return "channel" if family in _CHANNEL and "channel" in known else None
        if family in _SPREAD:  # its key lacks the count: its bytes can be another's
            return "spread" if "channel" in known else None
        if bytes_ != self._tensor.bytes:
            return None
        if family in _SUMS:
            return "sum" if known <= _WITHIN and known != {"channel"} else None
        if family == "Sub":
            return "product" if known == {"input", "channel"} else None
        if family not in ("Mul", "RealDiv"):
            return None
        unknown = [(n, tensor) for n, tensor in self._graph.given(index, key) if not roles[n]]
        if unknown and unknown[0][1].elements == 1:  # a constant
            return "spread" if "spread" in known else None
        if not unknown:
            fits = known == {"input", "gradient"} or known & {"channel", "product"}
            return "product" if fits and "sum" not in known else None
        if known == {None, "channel"} and unknown[0][1].shape == self._tensor.shape:
            self._is(unknown[0][0], "gradient")
            return "product"
        return None

    def _applies(self, index: int) -> bool:
        """True if the input is multiplied here by one number for each channel, not each example."""
        key = self._graph.key(index, frozenset({"Mul", "Sub"}))
        if key is None or self._roles[index] != "product":
            return False
        shape = self._tensor.shape
        for node, tensor in self._graph.given(index, key):
            if self._roles.get(node) == "channel":
                filled = (1,) * (len(shape) - len(tensor.shape)) + tensor.shape
                along = [axis for axis, length in enumerate(filled) if length > 1]
                return len(along) == 1 and along[0] > 0 and filled[along[0]] == shape[along[0]]
        return False

    def _matters(self, index: int) -> bool:
        """Not what only the moving averages and the optimiser read."""
        if self._roles[index] != "channel" or self._graph.key(index, _REDUCTIONS):
            return True
        return any(
            self._roles.get(reader) in _WITHIN and self._matters(reader)
            for reader in self._graph.readers[index]
        )


def _family(key: Key) -> str:
    return "Add" if key.family == "AddV2" else key.family
