"""Steps with further blocks, against the same networks made so deep."""

from __future__ import annotations

import random

import msgspec
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dltune.documents.profile import Node, Op, Step, Tensor
from dltune.graph.liveness import peak
from dltune.memory.deeper import Deeper
from dltune.memory.measured import measured
from dltune.memory.repeats import find
from dltune.memory.schedule import Step as Run
from dltune.memory.schedule import lives

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
    def ops(self) -> list[Op]:
        return [Op(key, key.partition("#")[0], (), 1, 0, 1.0, ()) for key in self.kinds]

    @property
    def step(self) -> Step:
        return synthetic.profile(HERE, self.ops, {"train": self.nodes}).steps[0]


def needed(step: Step) -> int:
    found = measured(step)
    order = [Run(node) for node in found.order]
    return peak(lives(found.graph, order, found.written, found.forwarded))[0]


@given(
    blocks=st.integers(3, 5),
    copies=st.integers(0, 4),
    ops=st.integers(2, 4),
    skip=st.booleans(),
    swapped=st.none() | st.integers(0, 9),
)
def test_further_blocks_are_as_if_the_network_had_them(blocks, copies, ops, skip, swapped):
    network = Network(blocks, ops, skip, swapped)
    repeat = find(network.step, network.ops)
    assert repeat is not None
    deeper = Deeper(network.step, repeat)
    found = deeper.of(copies)
    direct = Network(blocks + copies, ops, skip, swapped).step
    assert sorted(node.type for node in found.nodes) == sorted(node.type for node in direct.nodes)
    assert sum(measured(found).seconds) == sum(measured(direct).seconds)
    assert [found.nodes[at].type for at in measured(found).order] == [
        direct.nodes[at].type for at in measured(direct).order
    ]
    assert needed(found) == needed(direct)
    assert repeat.blocks == blocks
    # values of variables and handles
    assert deeper.parameters == sum(100 + op + 8 for op in range(ops))


def test_blocks_that_grow_are_not_repeated():
    network = Network(4, 3, True, None, grows=8)
    assert find(network.step, network.ops) is None


def test_towers_side_by_side_are_not_repeated():
    nodes = [synthetic.node("IteratorGetNext_in", 0)]
    for tower in range(4):
        nodes.append(synthetic.node(f"Conv_{tower}", 1, [0]))
        nodes.append(synthetic.node(f"Relu_{tower}", 2, [len(nodes) - 1]))
    nodes.append(synthetic.node("Concat_all", 3, [2, 4, 6, 8]))
    nodes = [
        msgspec.structs.replace(node, start=float(at), end=at + 1.0)
        for at, node in enumerate(nodes)
    ]
    kinds = ("IteratorGetNext", "Conv", "Relu", "Concat")
    ops = [Op(kind, kind, (), 1, 0, 1.0, ()) for kind in kinds]
    assert find(synthetic.profile(HERE, ops, {"train": nodes}).steps[0], ops) is None
