"""Layers as operators: what each part reads, and that nothing is lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regions import read

from dltune.base.documents import struct_faults
from dltune.simulate import architectures
from dltune.simulate.architectures import Building, Padding
from dltune.systems.parallelism.networks import operators, window
from dltune.systems.parallelism.schemas.operators import Operators


def convolved(length: int, size: int, stride: int, padding: Padding) -> Operators:
    """Of different extents in the two directions."""
    net = Building.on(length)
    x = net.conv(0, "conv", 4, (size, 1), stride, padding, relu=False)
    return operators(net.network(net.mean(x, "mean")), "one", 2)


@given(st.data())
def test_a_convolution_reads_the_windows_of_its_definition(data):
    """TensorFlow's: SAME puts the smaller half of the padding before."""
    size = data.draw(st.sampled_from([1, 2, 3, 5, 7, 11]), "size")
    stride = data.draw(st.integers(1, min(size, 4)), "stride")
    length = data.draw(st.integers(6 * size, 80), "length")
    padding = data.draw(st.sampled_from(["SAME", "VALID"]), "padding")
    conv = convolved(length, size, stride, padding).operators[1]
    region = conv.inputs[0].regions[1]
    count = conv.dimensions[1].size
    edge = (count - 1) * stride + size - length
    before = max(edge, 0) // 2 if padding == "SAME" else 0
    low = data.draw(st.integers(0, count - 1), "low")
    high = data.draw(st.integers(low + 1, count), "high")
    looked = {
        place
        for position in range(low, high)
        for place in range(position * stride - before, position * stride - before + size)
    }
    there = sorted(looked & set(range(length)))
    assert there == [*read(region, (low, high), length)]


@given(length=st.integers(1, 100), size=st.sampled_from([1, 2, 3, 5, 7]), stride=st.integers(1, 4))
def test_each_window_sees_something(length, size, stride):
    """Where several strides give as many windows, too."""
    count = -(-length // stride)
    found, start = window(length, count, size)
    assert found <= stride
    assert -size < start <= 0
    assert (count - 1) * found + start < length


def test_windows_that_cannot_be():
    with pytest.raises(ValueError, match="no stride gives 7 windows of 3 over 10"):
        window(10, 7, 3)


def test_padding_belongs_to_what_reads_it():
    net = Building.on(14)
    x = net.conv(net.pad(0, "pad", 3), "conv", 4, 7, 2, "VALID")
    (_, conv, _, _) = operators(
        net.network(net.conv(net.mean(x, "mean"), "fc", 10, 1)), "n", 1
    ).operators
    _, down, across, _ = conv.inputs[0].regions
    assert (down.extent, down.stride, down.start) == (7, 2, -3)
    assert across == type(down)(7, 2, 2, -3)
    assert [*read(down, (0, 1), 14)] == [0, 1, 2, 3]
    assert [*read(down, (6, 7), 14)] == [9, 10, 11, 12, 13]


def test_channels_side_by_side():
    """A part of a concatenation reads only those whose channels it has."""
    net = Building.on(8)
    ends = [net.conv(0, name, channels, 1) for name, channels in (("a", 3), ("b", 5))]
    x = net.mean(net.concat("both", ends), "mean")
    graph = operators(net.network(x), "n", 2)
    both = graph.operators[3]
    assert [both.inputs[n].operator for n in (0, 1)] == [1, 2]
    a, b = (one.regions[3] for one in both.inputs)
    assert [*read(a, (0, 4), 3)] == [0, 1, 2]
    assert [*read(b, (0, 4), 5)] == [0]
    assert [*read(a, (4, 8), 3)] == []
    assert [*read(b, (4, 8), 5)] == [1, 2, 3, 4]


def test_what_is_folded_and_what_divides_weights():
    net = Building.on(8)
    x = net.conv(0, "conv", 4, 3)
    y = net.sum("sum", x, net.batch_norm(net.bare(x, "bare", 4, 1), "norm"))
    x = net.max_pool(net.relu(y, "after"), "pool", 2)
    x = net.conv(net.dropout(x, "dropout"), "all", 10, 4, padding="VALID", relu=False)
    graph = operators(net.network(x), "n", 2)
    assert struct_faults("", graph) == []
    assert [(one.name, one.type) for one in graph.operators] == [
        ("input", "input"),
        ("conv", "conv 3x3/1 bias relu"),
        ("bare", "conv 1x1/1 batch_norm relu"),
        ("sum", "add relu"),
        ("pool", "max_pool 2x2/2 dropout"),
        ("all", "dense bias softmax"),
    ]
    kinds = {one.name: one.dimensions[-1].kind for one in graph.operators}
    assert [name for name, kind in kinds.items() if kind == "parameter"] == ["conv", "bare", "all"]
    assert kinds["input"] == "whole"
    assert [one.name for one in graph.operators if not one.gradient] == ["input"]
    # weights of the whole and the biases or offsets
    numbers = {one.name: one.bytes // 4 for one in graph.weights}
    assert numbers == {"conv": 9 * 3 * 4 + 4, "bare": 4 * 4 + 4, "all": 4 * 4 * 4 * 10 + 10}
    # what has one position has no height and no width, and reads all of them
    last = graph.operators[-1]
    assert [one.name for one in last.dimensions] == ["sample", "channel"]
    assert [(one.of, one.extent) for one in last.inputs[0].regions] == [
        *((0, 1), (None, 4), (None, 4), (None, 4))
    ]


@pytest.mark.parametrize("name", ["AlexNet v2", "Inception v1", "Inception v3", "ResNet-101 v1"])
def test_nothing_is_lost(name):
    network = architectures.NETWORKS[name].build()
    graph = operators(network, name, 3)
    needed = [network.layers[number] for number in network.needed]
    assert sum(one.bytes for one in graph.weights) == sum(
        one.bytes for layer in needed for one in layer.parameters
    )
    assert sum(one.flops for one in graph.operators) == 3 * sum(
        network.forward(layer, training=True) for layer in needed
    )
    assert sum(one.backward_flops for one in graph.operators) == 3 * sum(
        map(network.backward, needed)
    )
    own = {layer.name: layer for layer in needed}
    for one in graph.operators:
        sizes = [dimension.size for dimension in one.dimensions]
        assert math.prod(sizes) == 3 * own[one.name].size


def test_what_is_no_operator_here():
    net = Building.on(227)
    x = net.like(net.bare(0, "CONV1", 96, 11, 4, "VALID"), "RELU1", "relu")
    with pytest.raises(ValueError, match=r"'LRN1' \(lrn\) is no operator"):
        operators(net.network(net.like(x, "LRN1", "lrn")), "AlexNet", 1)
    # a sum that the next unit reads both normalised and as it is
    with pytest.raises(ValueError, match="is no operator"):
        operators(architectures.NETWORKS["ResNet-50 v2"].build(), "ResNet-50", 1)
