"""Steps of training put together op by op, with the keys that their inputs give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dltune.schemas.graph import SIZES
from dltune.schemas.profile import (
    Node,
    Op,
    OpTime,
    Samples,
    Step,
    Tensor,
)

Shape = tuple[int, ...]


class Value(NamedTuple):
    """What a node gives out."""

    node: int
    slot: int
    shape: Shape
    dtype: str


class Network:
    """Each method adds ops. Every op takes a millisecond on one thread, half of it on two."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.ops: dict[str, Op] = {}
        self.layers: dict[int, str] = {}
        self.rate = self.read(self.handle(), (), "sgd/Cast/ReadVariableOp")

    @property
    def step(self) -> Step:
        measured = Samples(10, 0.1, 0.1, 0.0)
        return Step("abc", "train", 10, 1.0, measured, measured, tuple(self.nodes))

    def add(
        self,
        type: str,
        inputs: Sequence[Value] = (),
        *shapes: Shape,
        name: str = "",
        dtype: str = "float",
        attributes: str = "",
        control: Sequence[int] = (),
    ) -> list[Value]:
        """An op that gives out tensors of these shapes."""
        types = ",".join(f"{v.dtype}[{','.join(map(str, v.shape))}]" for v in inputs)
        key = f"{type}({types})" + (f"{{{attributes}}}" if attributes else "")
        layer = next((self.layers[v.node] for v in inputs if v.node in self.layers), "")
        sizes = [math.prod(shape) * SIZES.get(dtype, 0) for shape in shapes]
        # how large a gradient is, is not in its key
        times = tuple(OpTime(n, "spread", 5, 1e-3 / n, 1e-3 / n, 0.0) for n in (1, 2))
        op = Op(key, type, tuple(types.split(",")), 1, sum(sizes), None, times)
        self.ops.setdefault(f"{key} {sum(sizes)}", op)
        self.nodes.append(
            Node(
                name=name or f"{layer}{type}_{len(self.nodes)}",
                type=type,
                op=list(self.ops).index(f"{key} {sum(sizes)}"),
                inputs=tuple(v.node for v in inputs),
                control=tuple(control),
                output_bytes=sum(sizes),
                repeats=1.0,
                slots=tuple(v.slot for v in inputs),
                outputs=tuple(Tensor(dtype, size) for size in sizes),
            )
        )
        return [Value(len(self.nodes) - 1, n, s, dtype) for n, s in enumerate(shapes)]

    def one(
        self,
        type: str,
        inputs: Sequence[Value],
        shape: Shape,
        *,
        name: str = "",
        dtype: str = "float",
        attributes: str = "",
    ) -> Value:
        return self.add(type, inputs, shape, name=name, dtype=dtype, attributes=attributes)[0]

    def handle(self) -> Value:
        return self.one("_Arg", (), (), dtype="resource")

    def read(self, handle: Value, shape: Shape, name: str) -> Value:
        return self.one("ReadVariableOp", [handle], shape, name=name)

    def weight(self, shape: Shape, layer: str) -> tuple[Value, Value]:
        """Of a layer as Keras names its scopes, with what it holds."""
        handle = self.handle()
        value = self.read(handle, shape, f"functional_1/{layer}/Cast/ReadVariableOp")
        self.layers[value.node] = f"functional_1/{layer}/"
        return handle, value

    def examples(self, *shapes: Shape, dtype: str = "float") -> list[Value]:
        handle = self.handle()
        return self.add("IteratorGetNext", [handle], *shapes, dtype=dtype)

    def constant(self, count: int) -> Value:
        return self.one("Const", (), (count,) if count else (), dtype="int32")

    def loss(self, logits: Value, labels: Value) -> Value:
        """The gradient of it, a number for each of the logits."""
        kind = "SparseSoftmaxCrossEntropyWithLogits"
        loss, back = self.add(kind, [logits, labels], logits.shape[:-1], logits.shape)
        self.one("Mean", [loss, self.constant(1)], (), attributes="keep_dims=false")
        return back

    def update(self, handle: Value, gradient: Value) -> None:
        by = self.one("Mul", [gradient, self.rate], gradient.shape)
        self.add("AssignSubVariableOp", [handle, by])

    def momentum(self, handle: Value, gradient: Value) -> None:
        """Through a variable of the optimiser, which is changed and read again."""
        slot = self.handle()
        held = self.read(slot, gradient.shape, "sgd/Sub/ReadVariableOp")
        by = self.one("Sub", [gradient, held], gradient.shape)
        changed = len(self.nodes)
        self.add("AssignAddVariableOp", [slot, by])
        (now,) = self.add("ReadVariableOp", [slot], gradient.shape, control=[changed])
        self.update(handle, now)

    def product(self, a: Value, b: Value, *, left: bool = False, right: bool = False) -> Value:
        """`left` and `right`: transposed."""
        rows = a.shape[1] if left else a.shape[0]
        columns = b.shape[0] if right else b.shape[1]
        turns = f"transpose_a={left}, transpose_b={right}".lower()
        return self.one("MatMul", [a, b], (rows, columns), attributes=turns)


def perceptron(*, momentum: bool = False, clip: bool = False) -> Network:
    """Two dense layers with a rectifier between them: 8 numbers, 12, 10 classes."""
    net, batch = Network(), 16
    update = net.momentum if momentum else net.update
    gradients: list[tuple[Value, Value]] = []
    x, labels = net.examples((batch, 8), (batch,))
    first, w1 = net.weight((8, 12), "dense_1")
    second, w2 = net.weight((12, 10), "dense_1_2")
    bias, b2 = net.weight((10,), "dense_1_2")
    hidden = net.one("Relu", [net.product(x, w1)], (batch, 12))
    logits = net.one("BiasAdd", [net.product(hidden, w2), b2], (batch, 10))
    back = net.loss(logits, labels)
    gradients.append((bias, net.one("BiasAddGrad", [back], (10,))))
    gradients.append((second, net.product(hidden, back, left=True)))
    down = net.product(back, w2, right=True)
    down = net.one("ReluGrad", [down, hidden], (batch, 12))
    gradients.append((first, net.product(x, down, left=True)))
    if clip:
        norms = [net.one("L2Loss", [gradient], ()) for _, gradient in gradients]
        norm = net.one("Rsqrt", [net.one("AddN", norms, ())], ())
        gradients = [(h, net.one("Mul", [g, norm], g.shape)) for h, g in gradients]
    for handle, gradient in gradients:
        update(handle, gradient)
    return net
