"""The time that the parts of a layered step take, from their operations and bytes."""

from __future__ import annotations

import numpy as np

from dltune.simulate.networks import Device
from dltune.simulate.step_graph import Numbers
from dltune.systems.memory.model.layered import LayerStep


def seconds(step: LayerStep, device: Device) -> Numbers:
    """By node: as long as its operations or its bytes take, whichever is more. Its bytes: all that
    it reads and gives out, parameters and their gradients."""
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
