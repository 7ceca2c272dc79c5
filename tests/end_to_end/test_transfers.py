"""Parameters of a real server go to its worker in the planned order."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dltune.job import messages
from dltune.job.launch import Job, Process
from dltune.job.orders import Orders

pytestmark = pytest.mark.tensorflow

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_ps.py"
WORKER = "/job:worker/task:0"
STEPS = 5


@dataclass(frozen=True)
class Training:
    """What was heard of the server: its graph, and of each step what it ran."""

    graph: messages.Graph
    executions: list[messages.Execution]
    losses: str

    def sent(self) -> dict[int, str]:
        """By node, the tensors that go to the worker."""
        return {
            number: node.partner.rendezvous.split("_", 2)[2]
            for number, node in enumerate(self.graph.nodes)
            if node.type == "_Send" and node.partner is not None
        }


def trained(folder: Path, *orders: str) -> Training:
    def greet(process: Process) -> list[str]:
        return ["core\t0\t0", "cores", *orders, *Orders(1, discover=True).lines()]

    losses = folder / "losses"
    options = ["--model", "small", "--steps", str(STEPS), "--losses", str(losses)]
    command = [sys.executable, str(SCRIPT), *options]
    with Job(command, greet=greet, stdout=2, stderr=subprocess.DEVNULL) as job:
        heard = [event for event in job.events(0.2) if event is not None]
        assert job.exit_code == 0
    graphs = [
        (event.process, event.message)
        for event in heard
        if isinstance(event.message, messages.Graph)
        and event.message.device.startswith("/job:ps")
        and any(node.type == "_Recv" for node in event.message.nodes)  # the gradients
    ]
    ((server, graph),) = graphs
    executions = [
        event.message
        for event in heard
        if event.process is server
        and isinstance(event.message, messages.Execution)
        and event.message.graph == graph.id
    ]
    return Training(graph, executions, losses.read_text())


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Training:
    return trained(tmp_path_factory.mktemp("plain"))


def test_a_server_sends_in_the_planned_order(plain, tmp_path):
    """Each step, and with the very losses of a job without an order."""
    tensors = sorted(set(plain.sent().values()), reverse=True)
    assert len(tensors) == 5
    lines = [f"send\t{WORKER}\t{tensor}" for tensor in tensors]
    ordered = trained(tmp_path, "window\t1", *lines)
    sent = ordered.sent()
    assert ordered.executions  # the server is ended by a signal: its last ones are not heard of
    for execution in ordered.executions:
        ends = [
            (end, tensors.index(sent[node]))
            for node, *_, end, _ in execution.events
            if node in sent
        ]
        assert len(ends) == len(sent)
        ranks = [rank for _, rank in sorted(ends)]
        assert ranks == sorted(ranks)
    assert ordered.losses == plain.losses


def test_what_stands_in_no_order_goes_as_ever(plain, tmp_path):
    ordered = trained(tmp_path, f"send\t{WORKER}\tnothing", "send\t/job:worker/task:7\tlayer0")
    assert ordered.losses == plain.losses
    assert ordered.executions
