"""SuperNeurons' tables beside what is simulated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dltune.systems.memory.model.layered import layer_step
from dltune.systems.memory.offload import HOST, cached, held, hidden, overlapped, traffic

sys.path.append(str(Path(__file__).parents[4] / "scripts" / "research"))
import sim_memory as script


@pytest.mark.parametrize("name", script.RATES)
def test_op_times_are_those_of_the_rate_that_was_measured(name):
    batch, _, rate = script.RATES[name]
    run = script.case(name, batch, "keep").run(script.on(script.K40C, name), script.TIERS.near, [])
    assert batch / run.seconds == pytest.approx(rate)
    assert 0.1 < script.share(name) < 0.5


@pytest.mark.parametrize("batch", script.TABLE_3)
def test_the_rule_behind_table_3(batch):
    """All outputs of convolutions three times, the batch twice, the parameters once."""
    network = script.NETWORKS["AlexNet"]()
    conv = sum(layer.size for layer in network.layers if layer.kind == "conv")
    learned = sum(one.bytes for one in network.parameters)
    found = 4 * batch * (3 * conv + 2 * network.layers[0].size) + learned
    assert round(found / 1e9, 2) == script.TABLE_3[batch]


@pytest.mark.parametrize("batch", script.TABLE_3)
def test_the_cache_moves_nothing_up_to_896_and_the_batch_at_1024(batch):
    """Where all tensors stay for the step."""
    found = script.case("AlexNet", batch, "keep")
    assert cached(found.uses, script.ECC - found.parameters) == []
    every = script.unfreed(found)
    moved = cached(every, script.ECC - found.parameters)
    assert traffic(every, moved) == (0 if batch < 1024 else 2 * found.step.input)


@pytest.mark.parametrize(
    ("name", "needs", "batch"),
    [
        ("VGG16", "all three", 215),  # the paper: 224
        ("ResNet50", "a join each, one layer", 392),  # 384
        ("ResNet101", "a join each, one layer", 270),  # 256
        ("ResNet152", "a join each, one layer", 194),  # 176
        ("InceptionV4", "a join each, one layer", 279),  # 240
        ("ResNet101", "liveness, offloading", 77),  # TensorFlow: 80
    ],
)
def test_how_wide(name, needs, batch):
    step = layer_step(script.NETWORKS[name](), 1)
    kept = script.HELD * sum(one.bytes for one in step.network.parameters)
    assert (script.TIERS.near - kept) // script.POLICIES[needs](step) == batch


def test_the_cache_alone_goes_wider_than_the_paper():
    for name, paper in script.TABLE_5.items():
        step = layer_step(script.NETWORKS[name](), 1)
        kept = script.HELD * sum(one.bytes for one in step.network.parameters)
        room = script.TIERS.near - kept
        assert room // script.POLICIES["tensor cache"](step) >= paper[-1]


@pytest.mark.parametrize("name", ["AlexNet", "ResNet50", "InceptionV4"])
def test_ours_waits_for_no_copy_at_the_peak_of_published_offloading(name):
    found = script.case(name, 128 if name == "AlexNet" else 32, "keep")
    device = script.on(script.K40C, name)
    plain = [work.seconds for work in found.times(device, script.TIERS.near, [])]
    swaps = found.published()
    peak = int(held(found.uses, swaps).max())
    own = hidden(found.uses, plain, peak, HOST)
    ways = (own, swaps, cached(found.uses, peak))
    stalls = [overlapped(found.uses, plain, way, script.TIERS).stall for way in ways]
    assert stalls[0] == pytest.approx(0.0, abs=1e-6)
    assert stalls == sorted(stalls)


def test_figure_12_a_smaller_pool_leaves_less_for_workspaces():
    found = script.case("AlexNet", 300, "keep")
    device = script.on(script.K40C, "AlexNet")
    total = []
    for gib in (3, 5):
        swaps = cached(found.uses, gib * script.GIB - found.parameters)
        assert swaps == []
        total.append(sum(one.seconds for one in found.times(device, gib * script.GIB, swaps)))
    assert 1.05 < total[0] / total[1] < 240 / 203
