"""What an order would bring on other clusters and networks, from a profile."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import synthetic
from click.testing import CliRunner
from served import MIB, SERVER, WORKER, device, first_figure, profile, receive

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.cli import cli
from dltune.profile.processes import sends
from dltune.schemas.profile import Node, Partner, Tensor
from dltune.systems.transfers.decide import Cluster
from dltune.systems.transfers.forecast import BATCHES, RATES, SERVERS, WORKERS, Case, simulated
from dltune.systems.transfers.section import GIGABIT

replace = msgspec.structs.replace


def sized(found, workers: int, servers: int) -> Case:
    (case,) = [one for one in found.sizes if (one.workers, one.servers) == (workers, servers)]
    return case


def send(read: int, slot: int = 0) -> Node:
    met = Partner("edge_9_gradient", device(WORKER), device(SERVER))
    return replace(synthetic.node("_Send", 0, [read]), type="_Send", partner=met, slots=(slot,))


def test_the_papers_first_figure_on_more_workers():
    """A server sends two workers a MiB in two seconds. In the good order the first op runs beside
    the second transfer; in the other both ops come last."""
    found = simulated(profile(first_figure(), 1.0, 1.0), "tac", Cluster())
    assert found.bandwidth == MIB
    two = sized(found, 2, 1)
    assert two.ordered == pytest.approx(2 * 2 + 1)
    # as slow as the slower of two workers: three times of four the bad order's
    assert two.none == pytest.approx(2 * 2 + 2)
    assert two.gain == pytest.approx(6 / 5 - 1)
    assert sized(found, 16, 1).ordered == pytest.approx(16 * 2 + 1)
    # the second server sends beside the first, and a worker's own link carries no more than both
    assert sized(found, 2, 2).ordered == pytest.approx(2 + 2)
    assert [(one.workers, one.servers) for one in found.sizes] == [
        (workers, servers) for workers in WORKERS for servers in SERVERS
    ]


def test_other_networks_and_batch_sizes():
    found = simulated(profile(first_figure(), 1.0, 1.0), "tac", Cluster(workers=2))
    assert [(one.bandwidth / GIGABIT, one.batch) for one in found.networks] == [
        (pytest.approx(rate), batch) for rate in RATES for batch in BATCHES
    ]
    for case in found.networks:
        transfer = 2 * MIB / case.bandwidth
        good = max(2 * transfer, transfer + case.batch) + case.batch
        assert case.ordered == pytest.approx(good)
        assert case.gain >= 0


def test_what_one_of_several_workers_saw_of_a_link_is_its_share():
    made = profile(first_figure(), 1.0, 1.0)
    other = "/job:worker/task:1"
    tower = [receive("tower1/w", MIB, worker=other), synthetic.node("Op1", 1, [0])]
    peer = replace(made.steps[0], signature="s1", device=device(other), nodes=tuple(tower))
    found = simulated(replace(made, peers=(peer,)), "tac", Cluster())
    assert found.bandwidth == 2 * MIB
    assert sized(found, 2, 1).ordered == pytest.approx(2 + 1)
    assert {(one.workers, one.servers) for one in found.networks} == {(2, 1)}
    named = simulated(replace(made, peers=(peer,)), "tac", Cluster(bandwidth=float(MIB)))
    assert named.bandwidth == MIB


def test_gradients_go_back():
    """Behind the last op, over the link that parameters do not use; two workers share it."""
    nodes = [*first_figure(), send(3)]
    nodes[3] = replace(nodes[3], outputs=(Tensor("float", 2 * MIB),))
    made = profile(nodes, 1.0, 1.0)
    assert [(one.tensor, one.receiver, one.bytes) for one in sends(made.steps[0])] == [
        ("gradient", SERVER, 2 * MIB)
    ]
    assert sized(simulated(made, "tac", Cluster()), 2, 1).ordered == pytest.approx(5 + 4)


def test_the_size_of_what_is_sent():
    """That of the slot that is read; of a profile that tells no outputs, all of the node's."""
    given = replace(synthetic.node("Op1", 1), outputs=(Tensor("float", 3), Tensor("float", 5)))
    old = replace(synthetic.node("Op2", 2), outputs=(), output_bytes=7)
    other = replace(send(0), partner=Partner("loss", device(WORKER), device("/job:worker/task:1")))
    (step,) = profile([given, old, send(0, 1), send(1), other], 1.0, 1.0).steps
    assert [(one.node, one.bytes) for one in sends(step)] == [(2, 5), (3, 7)]


def test_without_a_bandwidth_it_must_be_named():
    made = profile(first_figure(), 1.0, 1.0, bandwidth=None)
    with pytest.raises(UsageError, match="which the profile does not contain") as caught:
        simulated(made, "tic", Cluster())
    assert "--bandwidth" in (caught.value.remedy or "")
    assert simulated(made, "tic", Cluster(bandwidth=GIGABIT)).bandwidth == GIGABIT


def test_the_command(tmp_path: Path):
    source = tmp_path / "profile.json"
    with documents.claim(source, overwrite=False) as file:
        file.write(profile(first_figure(), 1.0, 1.0))
    asked = ["plan", "transfers", str(source), "--simulate", "--overwrite"]
    told = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert "each task with 0.00839 Gbit/s in each direction" in told.stdout
    assert "gain of improved with 1 worker and 1 server" in told.stdout
    told = CliRunner().invoke(cli, [*asked, "--json"], catch_exceptions=False)
    whole = json.loads(told.stdout)
    assert whole["order"] == "improved"
    assert len(whole["simulated"]["sizes"]) == len(WORKERS) * len(SERVERS)
    told = CliRunner().invoke(cli, [*asked[:3], "--overwrite", "--json"])
    assert "simulated" not in json.loads(told.stdout)
