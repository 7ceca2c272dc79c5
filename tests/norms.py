"""Steps with normalisation layers, as Keras 3 traces them and TensorFlow differentiates them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from synthetic import machine
from synthetic import profile as made

from dltune.schemas import graph
from dltune.schemas.profile import Node, Op, Profile

Shape = tuple[int, ...]


class Graph:
    """Grows a step: nodes by name, each op 10 us a run. Sizes are float32."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.ops: dict[str, Op] = {}
        self._shapes: list[Shape] = []

    def add(self, name: str, kind: str, shape: Shape, *inputs: int, seconds: float = 1e-5) -> int:
        """A node whose result has this shape; it waits for `inputs`."""
        key = f"{kind}({','.join(self._tensor(given) for given in inputs)})"
        size = 4 * math.prod(shape)
        old = self.ops.get(key)
        op = Op(key, kind, (), 1 + (old.count if old else 0), size, seconds, ())
        self.ops[key] = op
        index = list(self.ops).index(key)
        self.nodes.append(Node(name, kind, index, inputs, (), size, 1.0))
        self._shapes.append(shape)
        return len(self.nodes) - 1

    def constant(self, *shape: int) -> int:
        self.nodes.append(Node("constant", "Const", None, (), (), 0, 0.0))
        self._shapes.append(shape)
        return len(self.nodes) - 1

    def norm(
        self, name: str, source: int, shape: Shape, axes: Sequence[int], *, scale: bool = True
    ) -> list[int]:
        """A layer forwards; its moments are along `axes`. The nodes; the last is its result."""
        small = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
        along, epsilon = self.constant(len(axes)), self.constant()
        inner = [
            mean := self.add(f"{name}/mean", "Mean", small, source, along),
            squares := self.add(f"{name}/squares", "SquaredDifference", shape, mean, source),
            variance := self.add(f"{name}/variance", "Mean", small, squares, along),
            more := self.add(f"{name}/add", "AddV2", small, variance, epsilon),
            factor := self.add(f"{name}/Rsqrt", "Rsqrt", small, more),
        ]
        if scale:
            gamma = self.constant(*small)
            factor = self.add(f"{name}/mul", "Mul", small, gamma, factor)
            inner.append(factor)
        scaled = self.add(f"{name}/mul_1", "Mul", shape, factor, source)
        moved = self.add(f"{name}/mul_2", "Mul", small, mean, factor)
        beta = self.constant(*small)
        shift = self.add(f"{name}/sub", "Sub", small, beta, moved)
        inner += [scaled, moved, shift]
        inner.append(self.add(f"{name}/add_1", "AddV2", shape, scaled, shift))
        self.moments = (mean, factor, inner[4])
        return inner

    def gradient(
        self, name: str, source: int, above: int, shape: Shape, axes: Sequence[int]
    ) -> list[int]:
        """The gradient of the layer that was added last; the last node is that of its input."""
        small = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
        mean, factor, root = self.moments
        along, part = self.constant(len(axes)), self.constant()
        times = self.constant(len(shape))
        inner = [
            direct := self.add(f"{name}/d0", "Mul", shape, above, factor),
            product := self.add(f"{name}/d1", "Mul", shape, above, source),
            sum_ := self.add(f"{name}/d2", "Sum", small, above, along),
            sums := self.add(f"{name}/d3", "Sum", small, product, along),
            minus := self.add(f"{name}/d4", "Neg", small, sum_),
            centre := self.add(f"{name}/d5", "Mul", small, minus, factor),
            tile := self.add(f"{name}/d6", "Tile", shape, centre, times),
            mean_ := self.add(f"{name}/d7", "Mul", shape, part, tile),
            slope := self.add(f"{name}/d8", "RsqrtGrad", small, root, sums),
            tile_ := self.add(f"{name}/d9", "Tile", shape, slope, times),
            each := self.add(f"{name}/d10", "Mul", shape, part, tile_),
            off := self.add(f"{name}/d11", "Sub", shape, source, mean),
            spread := self.add(f"{name}/d12", "Mul", shape, each, off),
        ]
        inner.append(self.add(f"{name}/d13", "AddN", shape, direct, mean_, spread))
        return inner

    def profile(self, shuffled: int | None = None) -> Profile:
        """`shuffled`: nodes in another order, by this seed."""
        nodes = self.nodes
        if shuffled is not None:
            order = list(range(len(nodes)))
            random.Random(shuffled).shuffle(order)
            to = {old: new for new, old in enumerate(order)}
            nodes = [
                Node(n.name, n.type, n.op, tuple(to[i] for i in n.inputs), (), *_rest(n))
                for n in (nodes[old] for old in order)
            ]
        return made(machine(2), list(self.ops.values()), {"train": nodes}, span=0.01)

    def _tensor(self, index: int) -> str:
        return str(graph.TensorType("float", self._shapes[index]))


def _rest(node: Node) -> tuple[int, float]:
    return node.output_bytes, node.repeats
