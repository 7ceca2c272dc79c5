"""Parameters of a real server go to its worker in the planned order."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dltune.job import protocol
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import Orders
from dltune.schemas.profile import load, task, tensor

pytestmark = pytest.mark.tensorflow

SCRIPT = Path(__file__).parents[4] / "scripts" / "examples" / "train_ps.py"
COORDINATOR = Path(__file__).parents[3] / "jobs" / "coordinator.py"
WORKER = "/job:worker/task:0"
STEPS = 5


@dataclass(frozen=True)
class Training:
    """What was heard of the server: its graph, and of each step what it ran."""

    graph: protocol.Graph
    executions: list[protocol.Execution]
    losses: str

    def sent(self) -> dict[int, str]:
        """By node, the tensors that go to the worker."""
        return {
            number: tensor(node.partner.rendezvous)
            for number, node in enumerate(self.graph.nodes)
            if node.type == "_Send" and node.partner is not None
        }


def heard_of(command: Sequence[str | Path], orders: Sequence[str], stdout: int = 2) -> list[Event]:
    def greet(process: Process) -> list[str]:
        return ["core\t0\t0", "cores", *orders, *Orders(1, discover=True).lines()]

    started = [sys.executable, *map(str, command)]
    with Job(started, greet=greet, stdout=stdout, stderr=subprocess.DEVNULL) as job:
        heard = [event for event in job.events(0.2) if event is not None]
        assert job.exit_code == 0
    return heard


def trained(folder: Path, *orders: str) -> Training:
    losses = folder / "losses"
    options = ["--model", "small", "--steps", str(STEPS), "--losses", losses]
    heard = heard_of([SCRIPT, *options], orders)
    graphs = [
        (event.process, event.message)
        for event in heard
        if isinstance(event.message, protocol.Graph)
        and event.message.device.startswith("/job:ps")
        and any(node.type == "_Recv" for node in event.message.nodes)  # the gradients
    ]
    ((server, graph),) = graphs
    executions = [
        event.message
        for event in heard
        if event.process is server
        and isinstance(event.message, protocol.Execution)
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


def coordinated(folder: Path, *orders: str) -> tuple[list[list[str]], str]:
    """Of each step the parameters in the order in which they came to the worker; the last loss."""
    with open(folder / "out", "w+") as out:
        heard = heard_of([COORDINATOR], orders, out.fileno())
        out.seek(0)
        loss = out.read()
    ((worker, graph),) = [
        (event.process, event.message)
        for event in heard
        if isinstance(event.message, protocol.Graph)
        and event.message.device.startswith("/job:worker")
        and any(node.type == "_Recv" for node in event.message.nodes)
    ]
    parameters = {
        number: tensor(node.partner.rendezvous)
        for number, node in enumerate(graph.nodes)
        if node.type == "_Recv" and node.partner and "ReadVariableOp" in node.partner.rendezvous
    }
    steps = [
        sorted(
            (end, parameters[node])
            for node, *_, end, _ in event.message.events
            if node in parameters
        )
        for event in heard
        if event.process is worker
        and isinstance(event.message, protocol.Execution)
        and event.message.graph == graph.id
    ]
    return [[parameter for _, parameter in step] for step in steps], loss


def out_of_order(arrived: Sequence[str], order: Sequence[str]) -> float:
    """The share of pairs; 0.5 by chance."""
    pairs = list(itertools.combinations([order.index(one) for one in arrived], 2))
    return sum(first > second for first, second in pairs) / len(pairs)


def test_a_coordinators_server_sends_in_the_planned_order(tmp_path):
    """Its worker has made the graph of which the server runs a part. What comes at the worker is
    seen there, where threads of the transport may pass each other."""
    plain, loss = coordinated(tmp_path)
    order = sorted(plain[0], reverse=True)
    assert len(order) == 6
    steps, ordered_loss = coordinated(
        tmp_path, "window\t1", *(f"send\t{WORKER}\t{parameter}" for parameter in order)
    )
    assert ordered_loss == loss
    assert all(sorted(step, reverse=True) == order for step in steps)
    # most steps: in one whose threads are kept from running, all others may pass them
    assert statistics.median(out_of_order(step, order) for step in steps) < 0.2


def test_profiled_planned_and_run(plain, tmp_path):
    """By dltune's own commands, all tasks of the job started by one."""
    dltune = [sys.executable, "-m", "dltune"]
    train = [sys.executable, SCRIPT, "--model", "small"]
    measured, planned = tmp_path / "profile.json", tmp_path / "plan.json"
    quick = ["--counters", "none", "--steps", "5", "-o", measured]
    endless = ["--", *train, "--steps", "1000000"]
    subprocess.run([*dltune, "profile", *quick, *endless], check=True, capture_output=True)
    profile = load(measured)
    (link,) = profile.links
    assert (link.sender, link.receiver) == ("/job:ps/task:0", WORKER)
    assert link.transfers > 0
    assert [task(step.device) for step in profile.steps] == [WORKER]
    assert [task(step.device) for step in profile.peers] == ["/job:ps/task:0"]
    assert min(time.samples for op in profile.ops for time in op.times) >= 5
    deciding = [*dltune, "plan", "transfers", measured, "-o", planned, "--bandwidth", "1"]
    subprocess.run(deciding, check=True, capture_output=True)
    losses, outcome = tmp_path / "losses", tmp_path / "outcome.json"
    running = [*dltune, "run", "--plan", planned]
    training = [*train, "--steps", "20", "--losses", losses]
    subprocess.run([*running, "--json", outcome, "--", *training], check=True, capture_output=True)
    document = json.loads(outcome.read_text())["sections"]["transfers"]
    (server,), (worker,) = document["servers"], document["workers"]
    assert (server["tensors"], server["planned"]) == (5, 5)
    assert (worker["task"], worker["steps"], worker["recorded"]) == (WORKER, 20, 1)
    assert worker["efficiency"] is not None
    assert losses.read_text().startswith(plain.losses)
    turns = tmp_path / "bench.json"
    short = ["--no-one-core", "--rounds", "1", "--seconds-per-turn", "0", "-o", turns]
    bench = subprocess.run(
        [*dltune, "bench", "--plan", planned, *short, *endless], capture_output=True, text=True
    )
    assert bench.returncode == 0, bench.stderr
    assert "planned tensors" not in bench.stderr  # none that nobody sends
    settings = json.loads(turns.read_text())["settings"]
    assert [setting["name"] for setting in settings] == ["as-found", "plan"]
    for (turn,) in (setting["turns"] for setting in settings):
        assert len(turn["scheduling"]) == len(turn["steps"]) >= 3
    other = subprocess.run(
        [*running, "--", *train, "--workers", "2"], capture_output=True, text=True
    )
    assert other.returncode == 2
    assert "it also has /job:worker/task:1" in other.stderr
