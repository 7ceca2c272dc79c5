"""Convolutions take what memory is left at each step for their workspaces (SuperNeurons, section
3.5): tensors first, then the fastest algorithm that has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dltune.simulate.networks import Algorithm, Device, algorithms, fastest
from dltune.systems.memory.model import layer_times
from dltune.systems.memory.model.layered import LayerStep
from dltune.systems.memory.model.schedule import Step


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
    the layer's inputs and to its weights, that of the first layer one."""
    network, half = step.network, len(step.route)
    plain = layer_times.seconds(step, device).tolist()
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
