"""Layers in pieces: found with all that belongs to them, and nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from norms import Graph

from dltune.analysis.step_parts import pieces

IMAGE = (8, 6, 6, 16)


def found(graph: Graph, shuffled: int | None = None) -> list[tuple[set[str], int, bool]]:
    profile = graph.profile(shuffled)
    step = profile.steps[0]
    return [
        ({step.nodes[index].name for index in layer.nodes}, layer.bytes, layer.gradient)
        for layer in pieces(step, profile.ops)
    ]


def names(graph: Graph, nodes: list[int]) -> set[str]:
    return {graph.nodes[index].name for index in nodes}


@given(
    st.lists(st.integers(2, 9), min_size=3, max_size=5).map(tuple),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
    st.data(),
)
def test_a_layer_with_its_gradient(shape, scale, first, order, data):
    """On any axis but the batch's, whatever the nodes' order."""
    axis = 1 if first else len(shape) - 1
    axes = [other for other in range(len(shape)) if other != axis]
    graph = Graph()
    source = graph.add("conv", "Conv2D", shape)
    inner = graph.norm("layer", source, shape, axes, scale=scale)
    after = graph.add("relu", "Relu", shape, inner[-1])
    graph.add("loss", "Sum", (), after)
    above = graph.add("relu_grad", "ReluGrad", shape, after)
    inner += graph.gradient("layer", source, above, shape, axes)
    graph.add("conv_grad", "Conv2DBackpropFilter", (3, 3, 2, 16), inner[-1])
    (layer,) = found(graph, order)
    assert layer == (names(graph, inner), 4 * math.prod(shape), True)


def test_a_layer_without_a_gradient():
    graph = Graph()
    source = graph.add("conv", "Conv2D", IMAGE)
    inner = graph.norm("layer", source, IMAGE, (0, 1, 2))
    assert found(graph) == [(names(graph, inner), 4 * math.prod(IMAGE), False)]


def test_moving_averages_and_the_optimiser_are_not_the_layer_s():
    graph = Graph()
    source = graph.add("conv", "Conv2D", IMAGE)
    inner = graph.norm("layer", source, IMAGE, (0, 1, 2))
    rate, shape = graph.constant(), (1, 1, 1, 16)
    moving = graph.add("moving", "Mul", shape, rate, graph.moments[0])
    graph.add("moved", "AddV2", shape, graph.constant(*shape), moving)
    above = graph.add("relu_grad", "ReluGrad", IMAGE)
    inner += graph.gradient("layer", source, above, IMAGE, (0, 1, 2))
    sums = next(i for i in inner if graph.nodes[i].name == "layer/d3")
    update = graph.add("sgd", "Mul", shape, rate, sums)
    graph.add("variable", "AssignSubVariableOp", (), graph.constant(*shape), update)
    ((within, _, _),) = found(graph)
    assert within == names(graph, inner)


def test_two_layers_that_are_added_stay_apart():
    graph = Graph()
    layers = []
    for name in ("left", "right"):
        source = graph.add(name, "Conv2D", IMAGE)
        layers.append(graph.norm(name, source, IMAGE, (0, 1, 2)))
    graph.add("residual", "AddV2", IMAGE, layers[0][-1], layers[1][-1])
    assert [within for within, _, _ in found(graph)] == [names(graph, inner) for inner in layers]


@pytest.mark.parametrize("shape", [(8, 16), (8, 1, 1, 16)])
def test_a_layer_that_no_fused_kernel_takes(shape):
    graph = Graph()
    source = graph.add("dense", "MatMul", shape)
    graph.norm("layer", source, shape, tuple(range(len(shape) - 1)))
    assert found(graph) == []


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 32), (1,)),
        ((8, 8), (1,)),
        ((8, 6, 32), (2,)),
        ((8, 6, 6, 16), (3,)),
        ((8, 6, 6, 16), (1, 2, 3)),
        ((8, 6, 6, 4, 4), (1, 2, 4)),
        ((8, 6, 6, 16), (1, 2)),
    ],
)
def test_layers_that_normalise_each_example_are_no_batch_norm(shape, axes):
    graph = Graph()
    source = graph.add("dense", "MatMul", shape)
    inner = graph.norm("layer", source, shape, axes)
    above = graph.add("grad", "ReluGrad", shape, inner[-1])
    graph.gradient("layer", source, above, shape, axes)
    assert found(graph) == []


def test_a_fused_layer_is_none():
    graph = Graph()
    source = graph.add("conv", "Conv2D", IMAGE)
    graph.add("layer", "FusedBatchNormV3", IMAGE, source, graph.constant(16))
    assert found(graph) == []
