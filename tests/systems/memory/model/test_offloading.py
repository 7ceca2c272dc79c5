"""Offloading as SuperNeurons publishes it, on its AlexNet with batches of 200."""

from __future__ import annotations

import numpy as np
import pytest

from dltune.simulate.networks import Device
from dltune.systems.memory import cudnn
from dltune.systems.memory.model.layered import layer_seconds, layer_step, schedule_recomputation
from dltune.systems.memory.model.schedule import accesses
from dltune.systems.memory.offload import (
    GPUS,
    HOST,
    cached,
    held,
    hidden,
    overlapped,
    published,
    traffic,
)

MB = 1 << 20
ALEXNET = layer_step(cudnn.alexnet(), 200)
DEVICE = Device(flops=4.29e12, bandwidth=288e9, share=0.5)


def found(step, strategy):
    steps = schedule_recomputation(step, strategy, offload=True)
    uses = accesses(step.graph, steps)
    times = layer_seconds(step, DEVICE)[[one.node for one in steps]].tolist()
    return uses, times, published(step, steps, uses)


@pytest.mark.parametrize(("strategy", "mb"), [("keep", 1132.056), ("cost", 886.230)])
def test_copies_that_overlap_leave_the_peaks_as_they_are(strategy, mb):
    """What leaves is held until the next convolution, and what comes back from a gradient of a
    convolution on: not counted in the paper's liveness, but never at its peak."""
    uses, _, swaps = found(ALEXNET, strategy)
    level = held(uses, swaps)
    assert round(level.max() / MB, 3) == mb
    if strategy == "keep":
        assert int(np.argmax(level)) + 1 == 39
        assert round(uses.levels.max() / MB, 3) == 1489.355


def test_what_leaves_and_when():
    uses, _, swaps = found(ALEXNET, "keep")
    names = ALEXNET.graph.names
    owner = uses.lives.tensor
    told = [
        (names[ALEXNET.graph.tensors.producer[owner[s.block]]], names[s.back], names[s.use])
        for s in swaps
    ]
    assert told == [
        ("CONV5", "SOFTMAX backward", "POOL5 backward"),
        ("CONV4", "CONV5 backward", "RELU4 backward"),
        ("CONV3", "CONV4 backward", "RELU3 backward"),
        ("CONV2", "CONV3 backward", "POOL2 backward"),
        ("CONV1", "CONV2 backward", "POOL1 backward"),
    ]
    assert all(names[s.freed] in ("CONV2", "CONV3", "CONV4", "CONV5", "FC1") for s in swaps[1:])
    conv = sum(x.size for x in ALEXNET.network.layers if x.kind == "conv")
    assert traffic(uses, swaps) == 2 * 4 * 200 * conv


def test_ours_waits_less_than_either_at_the_same_peak():
    uses, times, swaps = found(ALEXNET, "keep")
    peak = int(held(uses, swaps).max())
    stalls = [
        overlapped(uses, times, way, GPUS["k40c"]).stall
        for way in (hidden(uses, times, peak, HOST), swaps, cached(uses, peak))
    ]
    assert stalls[0] == pytest.approx(0.0, abs=1e-9)
    assert stalls == sorted(stalls)


def test_nothing_moves_where_everything_fits():
    """Table 3: the tensor cache against no cache."""
    uses, _, swaps = found(ALEXNET, "keep")
    assert traffic(uses, swaps) > 0
    assert cached(uses, int(uses.levels.max())) == []


def test_a_part_takes_as_long_as_its_operations_or_its_bytes():
    times = dict(zip(ALEXNET.graph.names, layer_seconds(ALEXNET, DEVICE).tolist(), strict=True))
    conv2 = 2 * 5 * 5 * 96 * 256 * 27 * 27 * 200
    assert times["CONV2"] == pytest.approx(conv2 / (0.5 * DEVICE.flops))
    assert times["CONV2 backward"] == pytest.approx(2 * times["CONV2"])
    assert times["RELU1"] == pytest.approx(2 * 4 * 200 * 96 * 55 * 55 / (0.5 * DEVICE.bandwidth))
