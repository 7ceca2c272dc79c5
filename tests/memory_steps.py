"""Profiles of a step of training whose memory is to be planned."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import synthetic

from dltune.schemas.profile import (
    Memory,
    Node,
    Profile,
    Tensor,
)

HERE = synthetic.machine(2)
LIVE, LAYERS, MIB = 3 << 20, 8, 1 << 20


def node(at: int, name: str, inputs: Sequence[int], bytes: int, seconds: float = 0.01) -> Node:
    return msgspec.structs.replace(
        synthetic.node(name, 0, inputs),
        outputs=(Tensor("float", bytes),),
        start=at * 0.01,
        end=at * 0.01 + seconds,
    )


MEMORY = Memory(LIVE, 2 * LIVE)


def profile(nodes: Sequence[Node], memory: Memory | None = MEMORY) -> Profile:
    op = synthetic.op("Conv2D", None, HERE, key="Conv2D(float[16,8],float[16,8])")
    made = synthetic.profile(HERE, [op], {"train": list(nodes)})
    return msgspec.structs.replace(made, memory=memory)


def training() -> Profile:
    """Layers of 1 MiB each, and their gradients from the last to the first; each op takes 10 ms."""
    nodes = [msgspec.structs.replace(node(0, "Conv2D_0", [], MIB), stateful=True)]
    nodes += [node(at, f"Conv2D_{at}", [at - 1], MIB) for at in range(1, LAYERS)]
    for back in range(LAYERS):
        at = LAYERS + back
        nodes.append(node(at, f"Gradient_{at}", [at - 1, LAYERS - 1 - back], MIB))
    return profile(nodes)
