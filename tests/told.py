"""What a job's plugin would tell, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.record import Record

MS = 1_000_000  # nanoseconds
TRAINING = ("Conv2D", "ReadVariableOp", "Conv2DBackpropFilter", "AssignSubVariableOp")
VALIDATION = ("Conv2D", "ReadVariableOp", "AssignAddVariableOp")
PIPELINE = ("DecodeJpeg", "ResizeBilinear")
PYTHON_TOLD = Event(None, protocol.Python(1, ["python", "train.py"], "3.11.0", {}))


def plugin(pid: int = 1) -> protocol.Plugin:
    return protocol.Plugin(pid, "2.21.0", "v2.21.0", "3.11.0")


def graph(
    id: int,
    types: Sequence[str],
    signature: str | None = None,
    *,
    device: str = "/device:CPU:0",
    xla: bool = False,
) -> protocol.Graph:
    """Nodes in a chain."""
    nodes = [
        protocol.Node(f"node{i}", kind, [i - 1] if i else [], [], kind.startswith("Iterator"))
        for i, kind in enumerate(types)
    ]
    return protocol.Graph(id, signature or "-".join(types), "", device, xla, nodes)


def key(id: int, op: str) -> protocol.Key:
    return protocol.Key(id, f"{op}(float[{id}])", op, f"float[{id}]")


def execution(
    graph: int,
    start: int,
    seconds: Sequence[float],
    *,
    keys: Sequence[int] | None = None,
    number: int = 0,
    version: int = 1,
    threads: int = 0,
) -> protocol.Execution:
    """One op after the other, from `start` (ns); node i took seconds[i] and has key keys[i]."""
    events = []
    now = 0
    for node, took in enumerate(seconds):
        end = now + round(took * 1e9)
        events.append((node, keys[node] if keys else node, threads, 0, now, end, "1"))
        now = end
    return protocol.Execution(graph, number, version, start, 0, 1000, 5000, events)


def record(
    graphs: Sequence[protocol.Graph], executions: Sequence[protocol.Execution] = ()
) -> Record:
    """A record that knows the keys 0 to 19."""
    made = Record(plugin())
    for each in graphs:
        made.add(each)
    for number in range(20):
        made.add(key(number, "Conv2D"))
    for each in executions:
        made.add(each)
    return made
