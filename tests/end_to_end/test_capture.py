"""What the plugin tells of the graphs of a real job over two tasks."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dltune.job import protocol
from dltune.job.launch import Job, Process
from dltune.job.protocol import Orders

pytestmark = pytest.mark.tensorflow

JOBS = Path(__file__).parents[1] / "jobs"
SIZE = 64
BYTES = SIZE * SIZE * 4


def heard_of(name: str) -> list[protocol.Message]:
    def greet(process: Process) -> list[str]:
        return ["core\t0\t0", "cores", *Orders(1, discover=True).lines()]

    command = [sys.executable, str(JOBS / name)]
    with Job(command, greet=greet, stderr=subprocess.DEVNULL) as job:
        heard = [event.message for event in job.events(0.2) if event is not None]
        assert job.exit_code == 0
    return heard


@pytest.fixture(scope="module")
def told() -> list[protocol.Message]:
    return heard_of("two_clusters.py")


@pytest.fixture(scope="module")
def clusters(told) -> list[dict[str, protocol.Graph]]:
    """Of both, the graphs of the step by their task."""
    steps = [m for m in told if isinstance(m, protocol.Graph) and len(m.nodes) > 10]
    named = [(graph.device.split("/")[1], graph) for graph in steps]
    assert Counter(job for job, _ in named) == {"job:worker": 2, "job:ps": 2}
    return [dict(named[:2]), dict(named[2:])]


def test_two_launches_of_one_cluster_give_equal_signatures(clusters):
    first, second = clusters
    for job in first:
        assert first[job].signature == second[job].signature
        assert first[job].id != second[job].id
    assert first["job:ps"].signature != first["job:worker"].signature


def test_endpoints_stand_in_no_key(told):
    keys = [m.key for m in told if isinstance(m, protocol.Key)]
    assert any(key.startswith("_Recv") for key in keys)
    assert not [key for key in keys if "incarnation" in key or "/job:" in key]


@pytest.mark.parametrize("number", [0, 1])
def test_sends_and_receives_find_each_other(clusters, number):
    """What one task sends, the other receives: the weights, the gradient, and the loop's turns."""
    partners = {
        kind: {
            node.partner
            for graph in clusters[number].values()
            for node in graph.nodes
            if kind in node.type
        }
        for kind in ("Send", "Recv")
    }
    crossing = {partner for partner in partners["Send"] if partner.sender != partner.receiver}
    assert crossing == partners["Recv"]
    assert {p.sender.split("/")[1] for p in crossing} == {"job:ps", "job:worker"}
    assert all(p.rendezvous and not p.members for p in crossing)


def test_edges_name_the_outputs_that_are_read(clusters):
    worker = clusters[0]["job:worker"].nodes
    (split,) = (index for index, node in enumerate(worker) if node.type == "Split")
    read = [
        slot
        for node in worker
        for other, slot in zip(node.inputs, node.slots, strict=True)
        if other == split
    ]
    assert sorted(read) == [0, 1]
    # a loop is entered at its first input, and turns by the second
    entries = [[worker[i].type for i in node.inputs] for node in worker if node.type == "Merge"]
    assert entries
    assert all(types == ["Enter", "NextIteration"] for types in entries)


def test_outputs_are_told_once_with_size_and_memory(told, clusters):
    outputs = [
        ((m.graph, node), slots)
        for m in told
        if isinstance(m, protocol.Execution)
        for node, slots in m.outputs
    ]
    sizes = dict(outputs)
    assert len(sizes) == len(outputs)
    whole = protocol.Output("float", BYTES, -1)
    for graph in clusters[0].values():
        of = [(node, sizes.get((graph.id, k), [])) for k, node in enumerate(graph.nodes)]
        for node, slots in of:
            if node.type in ("MatMul", "_MklMatMul", "ReadVariableOp"):
                assert slots == [whole]
            if node.type == "Split":
                assert slots == [whole, whole]
            if node.type == "Exit":
                assert slots == [protocol.Output("float", BYTES, 0)]
        # an asynchronous op's, too
        assert [whole] in [slots for node, slots in of if node.type == "_Recv"]


def test_collectives_that_get_their_group_as_tensors_find_it_in_the_graph():
    graphs = [m for m in heard_of("collectives.py") if isinstance(m, protocol.Graph)]
    nodes = [n for graph in graphs for n in graph.nodes if n.type == "CollectiveReduceV2"]
    assert {node.partner for node in nodes} == {protocol.Partner("7/9", members=1), None}
