from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.networks import Layer, Network
from dltune.systems.memory.model.layered import layer_step, route


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Layers that read some before them; all lead back to the input."""
    layers = [Layer("input", "input", (), (4,))]
    for number in range(1, draw(st.integers(2, 12))):
        inputs = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3, unique=True))
        layers.append(Layer(str(number), "add", tuple(inputs), (4,)))
    return Network(tuple(layers))


@given(networks())
def test_the_route_is_algorithm_1s(network):
    """As it is written: a function that calls itself and counts what has come to a layer."""
    found: list[int] = []
    counter = [0] * len(network.layers)

    def construct(number: int) -> None:
        if number:
            counter[number] += 1
            if counter[number] < len(network.layers[number].inputs):
                return
            found.append(number)
        for reader, layer in enumerate(network.layers):
            if number in layer.inputs:
                construct(reader)

    construct(0)
    assert route(network) == found
    assert sorted(found) == list(range(1, len(network.layers)))


def test_a_route_of_ten_thousand_layers():
    layers = [Layer("input", "input", (), (1,))]
    layers += [Layer(str(number), "relu", (number - 1,), (1,)) for number in range(1, 10_000)]
    assert route(Network(tuple(layers))) == list(range(1, 10_000))


def test_branches_part_at_forks_alone():
    layers = [
        Layer("input", "input", (), (4,)),
        Layer("one", "relu", (0,), (4,)),
        Layer("left", "relu", (1,), (4,)),
        Layer("right", "relu", (1,), (4,)),
        Layer("both", "add", (2, 3), (4,)),
    ]
    with pytest.raises(ValueError, match="2 layers read one, which is no fork"):
        layer_step(Network(tuple(layers)), 1)
