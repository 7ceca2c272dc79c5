"""Steps of blocks that are alike, one after the other."""

from __future__ import annotations

import random

import msgspec
import synthetic

from dltune.schemas.profile import (
    Node,
    Op,
    Profile,
    Tensor,
)

HERE = synthetic.machine(2)


class Network:
    """Blocks of `ops` kernels with a variable each between a stem and a head; `skip`: what a block
    is given is added to what it gives. Each is updated in the backward pass."""

    def __init__(self, blocks: int, ops: int, skip: bool, swapped: int | None, grows: int = 0):
        self.nodes: list[Node] = []
        self.kinds: dict[str, int] = {}
        self.draw = None if swapped is None else random.Random(swapped)
        rate = self.add("Rate", [], 4)
        last = self.add("IteratorGetNext", [], 64)
        last = self.add("Stem", [last], 32)
        kept = []
        for block in range(blocks):
            first, layers = last, []
            for op in range(ops):
                handle = self.add("Arg", [], 8)
                value = self.add("ReadVariableOp", [handle], 100 + op)
                given = last
                last = self.add(f"Forward{op}", [given, value], 50 + 10 * op + grows * block)
                layers.append((op, handle, value, given))
            if skip:
                last = self.add("AddV2", self.either(first, last), 32 + grows * block)
            kept.append(layers)
        loss = self.add("Loss", [last], 4)
        gradient = self.add("LossGradient", [loss, last], 32)
        for block in reversed(range(blocks)):
            above = gradient
            for op, handle, value, given in reversed(kept[block]):
                weights = self.add(f"Weights{op}", [gradient, given], 100 + op)
                gradient = self.add(f"Inputs{op}", [gradient, value], 50 + grows * block)
                step = self.add("Mul", self.either(rate, weights), 100 + op)
                self.add("AssignSubVariableOp", [handle, step], 0)
            if skip:
                gradient = self.add("AddN", self.either(gradient, above), 32 + grows * block)
        self.add("StemGradient", [gradient], 16)

    def either(self, one: int, other: int) -> list[int]:
        """As a rewriter orders them."""
        swap = self.draw is not None and self.draw.random() < 0.5
        return [other, one] if swap else [one, other]

    def add(self, name: str, inputs: list[int], bytes: int) -> int:
        at = len(self.nodes)
        op = self.kinds.setdefault(f"{name}#{bytes}#{len(inputs)}", len(self.kinds))
        node = msgspec.structs.replace(
            synthetic.node(f"{name}_{at}", op, inputs),
            outputs=(Tensor("float", bytes),) if bytes else (),
            start=at * 0.5,
            end=at * 0.5 + 0.25,
            stateful=name == "AssignSubVariableOp",
        )
        self.nodes.append(node)
        return at

    @property
    def profile(self) -> Profile:
        ops = [Op(key, key.partition("#")[0], (), 1, 0, 1.0, ()) for key in self.kinds]
        return synthetic.profile(HERE, ops, {"train": self.nodes})
