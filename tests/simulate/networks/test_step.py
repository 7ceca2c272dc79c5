"""A network's step as a graph."""

from __future__ import annotations

import numpy as np
import pytest

from dltune.simulate.architectures import Building
from dltune.simulate.networks import Device, Network, NetworkStep, inference, seconds, training

BATCH = 3


def branching() -> Network:
    """A convolution whose result two branches read, put together again."""
    net = Building.on(8)
    x = net.conv(0, "stem", 4, 3, 2)
    one = net.conv(x, "one", 2, 1, relu=False)
    two = net.max_pool(x, "two", 3, 1, "SAME")
    x = net.dropout(net.mean(net.concat("both", [one, two]), "mean"), "dropout")
    return net.network(net.conv(x, "logits", 1000, 1, relu=False))


def reads(step: NetworkStep, name: str) -> list[str]:
    graph = step.graph
    node = graph.names.index(name)
    return [graph.names[graph.tensors.producer[one]] for one in graph.reads[node]]


def test_what_inference_reads():
    step = inference(branching(), BATCH)
    assert step.sent == {}
    assert [one.name for one in step.received.values()] == [
        *("stem/weights", "stem/biases", "one/weights", "one/biases"),
        *("logits/weights", "logits/biases"),
    ]
    assert reads(step, "stem") == ["input", "stem/weights"]
    assert reads(step, "stem/bias") == ["stem", "stem/biases"]
    assert reads(step, "both") == ["one/bias", "two"]


def test_what_gradients_read():
    step = training(branching(), BATCH)
    assert reads(step, "gradients/predictions") == ["predictions"]
    # its bias hands the gradient on that it is given, once its own is there
    assert reads(step, "gradients/logits/bias") == ["gradients/predictions"]
    assert reads(step, "gradients/logits") == ["gradients/logits/bias", "dropout", "logits/weights"]
    assert reads(step, "gradients/both") == ["gradients/mean"]
    assert reads(step, "gradients/two") == ["gradients/both", "two", "stem/relu"]
    # two branches had read it
    assert set(reads(step, "gradients/stem/relu/sum")) == {"gradients/one", "gradients/two"}
    # nobody asks for a gradient to the input
    graph = step.graph
    given = np.flatnonzero(graph.tensors.producer == graph.names.index("gradients/stem"))
    assert graph.tensors.bytes[given].tolist() == [4 * 3 * 3 * 3 * 4]
    assert {one.name for one in step.sent.values()} == {p.name for p in step.received.values()}


def test_operations_and_bytes():
    step = training(branching(), BATCH)
    flops = dict(zip(step.graph.names, step.flops.tolist(), strict=True))
    moved = dict(zip(step.graph.names, step.moved.tolist(), strict=True))
    # 4 x 4 positions of 3 x 3 x 3 weights for each of 4 channels
    assert flops["stem"] == BATCH * 2 * 16 * 27 * 4
    assert flops["gradients/stem"] == flops["stem"]
    assert flops["gradients/one"] == 2 * flops["one"] == BATCH * 2 * 2 * 16 * 4 * 2
    assert flops["two"] == BATCH * 9 * 64
    assert flops["squeeze"] == moved["squeeze"] == 0
    assert moved["stem"] == 4 * (BATCH * (8 * 8 * 3 + 64) + 108)
    # the gradient read, summed over all positions
    assert moved["gradients/stem/bias"] == 4 * (BATCH * 64 + 4)
    assert moved["stem/weights"] == moved["input"] == 0


def test_dropout_does_nothing_in_inference():
    steps = inference(branching(), 1), training(branching(), 1)
    works = [step.moved[step.graph.names.index("dropout")] > 0 for step in steps]
    assert works == [False, True]


def test_a_roofline():
    step = inference(branching(), BATCH)
    stem = step.graph.names.index("stem")
    bound = seconds(step, Device(flops=1e3, bandwidth=1e12))
    assert bound[stem] == pytest.approx(step.flops[stem] / 1e3)
    bound = seconds(step, Device(flops=1e12, bandwidth=1e3, share=0.5))
    assert bound[stem] == pytest.approx(2 * step.moved[stem] / 1e3)
    assert bound[list(step.received)].tolist() == [0.0] * len(step.received)
