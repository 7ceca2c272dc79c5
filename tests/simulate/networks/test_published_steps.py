"""Steps of published networks as graphs."""

from __future__ import annotations

import numpy as np
import pytest

from dltune.simulate.architectures import NETWORKS
from dltune.simulate.networks import inference, training
from dltune.simulate.step_graph import Kind, ancestors, lives, peak, topological


@pytest.mark.parametrize("name", NETWORKS)
def test_each_gradient_waits_for_all_that_a_step_receives(name):
    """They all need the loss; so an order of receives cannot change the backward half."""
    step = training(NETWORKS[name].build(), 1)
    assert len(topological(step.graph)) == len(step.graph)
    assert set(step.received.values()) == set(step.sent.values())
    for node in step.sent:
        assert set(step.received) <= ancestors(step.graph, [node])


@pytest.mark.parametrize("name", NETWORKS)
def test_training_takes_three_times_the_operations_less_a_gradient_to_the_input(name):
    network = NETWORKS[name].build()
    forward, whole = inference(network, 2).flops.sum(), training(network, 2).flops.sum()
    assert 2.8 < whole / forward < 3.01


def test_memory_of_a_step():
    """In training each layer's output lives until its gradient is computed."""
    network, batch = NETWORKS["ResNet-50 v1"].build(), 32
    held = []
    for step in (inference(network, batch), training(network, batch)):
        order = np.empty(len(step.graph), np.int64)
        order[topological(step.graph)] = np.arange(len(step.graph))
        tensors = step.graph.tensors
        assert (tensors.kind[tensors.producer == 0] == Kind.ARGUMENT).all()
        held.append(peak(lives(step.graph, order, order + 1))[0])
    outputs = sum(4 * batch * layer.size for layer in network.layers if layer.kind == "relu")
    assert held[0] < outputs < held[1]
