"""Published networks on simulated clusters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dltune.simulate.architectures import NETWORKS

sys.path.append(str(Path(__file__).parents[4] / "scripts" / "research"))
import simulate_transfers as script


@pytest.mark.parametrize("family", script.K80_RATES)
def test_op_times_are_those_of_the_training_that_was_measured(family):
    name, rate, batch = script.K80_RATES[family]
    share = batch / NETWORKS[name].batch
    seconds = script.replica(name, "training", batch=share).seconds.sum()
    assert batch / seconds == pytest.approx(rate)
    assert 0.2 < script.gpu(family).share < 1


def test_fewer_cores_are_as_much_slower():
    seconds = script.replica("Inception v3", "training", "cpu").seconds.sum()
    rate = NETWORKS["Inception v3"].batch / seconds
    assert rate == pytest.approx(script.CPU_RATE * script.CPU_CORES / script.CPU_RATE_CORES)


def test_parameters_in_turn_leave_weights_to_one_server_and_biases_to_the_other():
    place = script.servers("VGG-16", "training", 2, in_turn=True)
    step = script.step("VGG-16", "training", NETWORKS["VGG-16"].batch)
    for own in (step.received, step.sent):
        assert {(p.name.endswith("biases"), place[node]) for node, p in own.items()} == {
            (False, 0),
            (True, 1),
        }
    # evenly: one server has the greatest, three quarters of all, and little besides
    even = script.servers("VGG-16", "training", 2)
    (most,) = {even[node] for node, p in step.received.items() if p.name == "fc6/weights"}
    load = sum(p.bytes for node, p in step.received.items() if even[node] == most)
    assert 0.74 < load / sum(p.bytes for p in step.received.values()) < 0.85


@pytest.mark.parametrize("figure", ["11", "13"])
def test_a_figure_has_all_networks_in_both_modes(figure, capsys):
    script.FIGURES[figure](10.0)
    lines = capsys.readouterr().out.splitlines()
    for name in NETWORKS:
        assert sum(line.startswith(f"| {name} |") for line in lines) == 2


def test_an_order_brings_more_in_inference_where_transfers_and_computing_are_alike():
    gains = {
        (mode, rate): script.simulated("ResNet-50 v2", mode, 4, 1, rate).gain("tic")
        for mode in script.MODES
        for rate in (0.1, 10.0, 40.0)
    }
    for mode in script.MODES:
        assert gains[mode, 10.0] > max(gains[mode, 0.1], gains[mode, 40.0])
    assert gains["inference", 10.0] > gains["training", 10.0] > 0.1
