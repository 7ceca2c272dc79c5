"""The networks of TicTac's Table 1, against the table and against TensorFlow 1.8's own graphs."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from dltune.simulate.architectures import NETWORKS
from dltune.simulate.networks import Layer, Network, training

# of Table 1: parameters, their MiB, ops in inference and in training, batch size
TABLE_1 = {
    "AlexNet v2": (16, 191.89, 235, 483, 512),
    "Inception v1": (116, 25.24, 1114, 2246, 128),
    "Inception v2": (141, 42.64, 1369, 2706, 128),
    "Inception v3": (196, 103.54, 1904, 3672, 32),
    "ResNet-50 v1": (108, 97.39, 1114, 2096, 32),
    "ResNet-101 v1": (210, 169.74, 2083, 3898, 64),
    "ResNet-50 v2": (125, 97.45, 1423, 2813, 64),
    "ResNet-101 v2": (244, 169.86, 2749, 5380, 32),
    "VGG-16": (32, 527.79, 388, 758, 32),
    "VGG-19": (38, 548.05, 442, 857, 32),
}
# operations of the convolutions of a sample, as TensorFlow 1.8's profiler counts them in the graphs
# of TF-Slim, without Inception v3's auxiliary head
CONVOLUTIONS = {
    "AlexNet v2": 1_473_111_552,
    "Inception v1": 2_996_752_384,
    "Inception v2": 3_869_714_432,
    "Inception v3": 11_426_432_192,
    "ResNet-50 v1": 6_929_047_552,
    "ResNet-101 v1": 14_353_489_920,
    "ResNet-50 v2": 6_929_047_552,
    "ResNet-101 v2": 14_353_489_920,
    "VGG-16": 30_940_528_640,
    "VGG-19": 39_264_124_928,
}
BUILT = {name: published.build() for name, published in NETWORKS.items()}


def test_all_of_the_table():
    assert list(BUILT) == list(TABLE_1)


@pytest.mark.parametrize("name", TABLE_1)
def test_parameters_and_their_size(name):
    count, mib, _, _, batch = TABLE_1[name]
    parameters = BUILT[name].parameters
    assert len(parameters) == count
    assert round(sum(one.bytes for one in parameters) / 2**20, 2) == mib
    assert len({one.name for one in parameters}) == count
    assert NETWORKS[name].batch == batch


@pytest.mark.parametrize("name", TABLE_1)
def test_convolutions(name):
    network = BUILT[name]
    counted = sum(
        network.forward(layer, training=False)
        for layer in network.layers
        if layer.kind in ("conv", "depthwise") and not layer.name.startswith("aux")
    )
    assert counted == CONVOLUTIONS[name]


@pytest.mark.parametrize("name", TABLE_1)
def test_layers_read_what_comes_before_them_and_fit(name):
    layers = BUILT[name].layers
    assert len({layer.name for layer in layers}) == len(layers)
    assert layers[-1].shape == (1000,)
    for number, layer in enumerate(layers):
        assert all(one < number for one in layer.inputs)
        shapes = [layers[one].shape for one in layer.inputs]
        if layer.kind == "concat":
            assert {shape[:-1] for shape in shapes} == {layer.shape[:-1]}
            assert sum(shape[-1] for shape in shapes) == layer.shape[-1]
        if layer.kind == "add":
            assert shapes == [layer.shape, layer.shape]
        if layer.kind == "conv":
            assert layer.parameters[0].shape[2:] == (shapes[0][-1], layer.shape[-1])


# The ops of Table 1 are the nodes of the whole graph definition, initialisers included. By kind of
# layer, what TensorFlow 1.8 adds to it, read off graphs that TF-Slim built: besides variables.
FORWARD = {
    "input": 7,  # random numbers
    "conv": 2,  # Conv2D and its dilation rate
    "depthwise": 2,  # with its shape
    "bias": 1,
    "batch_norm": 3,
    "relu": 1,
    "max_pool": 1,
    "avg_pool": 1,
    "mean": 2,
    "pad": 2,
    "concat": 2,
    "add": 1,
    "dropout": 1,
    "squeeze": 1,
    "softmax": 80,  # labels by chance, and the loss
}
# constants, and two moving averages of five ops each
TRAINING = {**FORWARD, "batch_norm": 15, "dropout": 12}
# each gradient is passed on by an identity, when all of its layer are there
BACKWARD = {
    "conv": 8,
    "depthwise": 7,
    "bias": 4,
    "batch_norm": 11,
    "relu": 1,
    "max_pool": 1,
    "avg_pool": 2,
    "mean": 18,
    "pad": 9,
    "add": 3,
    "dropout": 20,
    "squeeze": 2,
    "softmax": 62,  # of the loss, and the optimizer's own
}
PREDICTIONS = 5  # ops of the softmax that these networks end in, which the loss does not need
PREDICTING = ("Inception", "ResNet")
# weights that begin truncated normal (an op less than Xavier's), large biases that begin constant
# (two less than zeros, which are filled in from 1,000 numbers on)
TRUNCATED = {"AlexNet v2": 3, "Inception v1": 57, "Inception v2": 31, "Inception v3": 2}
CONSTANT = {"AlexNet v2": 2}


def variable(size: int) -> int:
    """Zeros, the variable, its assignment and its reading."""
    return 3 + (3 if size >= 1000 else 1)


def variables(layer: Layer) -> int:
    if layer.kind in ("conv", "depthwise"):
        return 10
    if layer.kind == "batch_norm":  # with its moving averages
        return 3 * variable(layer.shape[-1])
    return sum(variable(math.prod(one.shape)) for one in layer.parameters)


def defined(name: str, network: Network, *, train: bool) -> int:
    """Nodes of TensorFlow 1.8's graph definition."""
    layers = network.layers
    per_kind = TRAINING if train else FORWARD
    count = sum(per_kind[layer.kind] + variables(layer) for layer in layers)
    count += PREDICTIONS * name.startswith(PREDICTING)
    return count - TRUNCATED.get(name, 0) - 2 * CONSTANT.get(name, 0)


def gradients(network: Network) -> int:
    """A head that the loss does not need has none."""
    layers = network.layers
    last = len(layers) - 1
    needed = {last}
    for number in range(last, -1, -1):
        needed |= set(layers[number].inputs) if number in needed else set()
    there = [layers[number] for number in needed if network.learns[number]]
    readers = Counter(one for layer in there for one in layer.inputs if network.learns[one])
    sums = sum(count > 1 for count in readers.values())
    concats = sum(4 + 3 * len(layer.inputs) for layer in there if layer.kind == "concat")
    updates = sum(len(layer.parameters) for layer in there)
    return sums + concats + updates + sum(BACKWARD.get(layer.kind, 0) for layer in there)


@pytest.mark.parametrize("name", TABLE_1)
def test_ops(name):
    network = BUILT[name]
    _, _, inference, train, _ = TABLE_1[name]
    assert defined(name, network, train=False) == inference
    assert defined(name, network, train=True) + gradients(network) == train


def test_what_a_step_needs_of_inception_v3():
    """The loss of the paper's program is that of the last layer: nobody asks for the other head."""
    step = training(BUILT["Inception v3"], 1)
    assert (len(step.received), len(step.sent)) == (190, 190)
    assert not [one.name for one in step.received.values() if one.name.startswith("aux")]
