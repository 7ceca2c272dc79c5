"""Facts that one process of a job has reported so far: graphs, op keys and executions."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dltune.job import protocol
from dltune.schemas.profile import Framework

NANOSECOND = 1e-9
# executions kept of each graph: a job can run thousands of small ones before its step is known
KEPT = 32
# executions, for a mean
FEW = 10
# nodes by which a graph computes gradients or applies them, which validation does not
_TRAINING = re.compile(r"Grad(?!ient)|Backprop|AssignSub|^(Resource)?(Sparse)?Apply|_backward\b")
# nodes by which a graph uses the model, which the functions of an input pipeline do not
_MODEL = re.compile(r"ReadVariable|^Var|^ResourceGather")


def trains(graph: protocol.Graph) -> bool:
    """Return True if the graph computes gradients or changes variables by them."""
    return graph.eager or any(_TRAINING.search(node.type) for node in graph.nodes)


@dataclass
class Record:
    """Facts of one process, gathered message by message.

    A function that is traced again gives a graph of the same structure: its executions count as
    executions of the first such graph, which `same` returns. `executions` are the latest `KEPT` of
    a graph, `runs` counts all. `seconds` is the op time of all except the first, which warms up; in
    a graph with XLA's clusters, which run asynchronously, the time from first op to last.
    `outputs`: outputs of a graph's nodes, by the first such graph and node.
    """

    process: protocol.Plugin
    graphs: dict[int, protocol.Graph] = field(default_factory=dict)
    keys: dict[int, protocol.Key] = field(default_factory=dict)
    output_bytes: dict[int, int] = field(default_factory=dict)
    outputs: dict[tuple[int, int], list[protocol.Output]] = field(default_factory=dict)
    executions: dict[int, list[protocol.Execution]] = field(
        default_factory=lambda: defaultdict(list)
    )
    runs: Counter[int] = field(default_factory=Counter)
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    devices: list[protocol.Device] = field(default_factory=list)
    report: protocol.Report | None = None
    complaints: list[str] = field(default_factory=list)
    _same: dict[int, int] = field(default_factory=dict)
    _structures: dict[tuple[object, ...], int] = field(default_factory=dict)
    _trains: dict[int, bool] = field(default_factory=dict)

    def latest(self) -> Iterator[protocol.Execution]:
        """Return the executions that are kept, of all graphs."""
        return itertools.chain.from_iterable(self.executions.values())

    def add(self, message: protocol.Message) -> None:
        if isinstance(message, protocol.Graph):
            self.graphs[message.id] = message
            self._same[message.id] = self._first_like(message)
            self._trains[message.id] = trains(message)
        elif isinstance(message, protocol.Key):
            self.keys[message.id] = message
        elif isinstance(message, protocol.OutputBytes):
            self.output_bytes[message.key] = message.bytes
        elif isinstance(message, protocol.Execution):
            self._add_execution(message)
        elif isinstance(message, protocol.Device):
            self.devices.append(message)
        elif isinstance(message, protocol.Report):
            self.report = message
        elif isinstance(message, protocol.Complaint):
            self.complaints.append(message.text)

    def _add_execution(self, execution: protocol.Execution) -> None:
        if not self.understands(execution):
            return
        graph = self.same(execution.graph)
        for node, outputs in execution.outputs:
            self.outputs.setdefault((graph, node), outputs)
        if self.runs[graph]:
            counted = span if self.graphs[graph].xla else op_seconds
            self.seconds[graph] += counted(execution)
        self.runs[graph] += 1
        kept = self.executions[graph]
        kept.append(execution)
        if len(kept) > KEPT:
            del kept[0]

    def _first_like(self, graph: protocol.Graph) -> int:
        # an eager graph's signature covers all that it runs
        nodes = () if graph.eager else tuple(map(_structure, graph.nodes))
        structure = graph.signature, len(graph.nodes), nodes
        return self._structures.setdefault(structure, graph.id)

    def understands(self, execution: protocol.Execution) -> bool:
        """Return True if the graph and keys of `execution` are known: the plugin leaves messages
        out when dltune cannot read them in time."""
        known = execution.graph in self.graphs
        if known and all(event[1] in self.keys for event in execution.events):
            return True
        lost = (
            "dltune lost some messages of the job, because the job ran graphs faster than dltune "
            "could read them"
        )
        if lost not in self.complaints:
            self.complaints.append(lost)
        return False

    def same(self, graph: int) -> int:
        """Return the first graph with the structure of `graph`."""
        return self._same[graph]

    def trains(self, graph: int) -> bool:
        """Return True if `graph` computes gradients or changes variables by them."""
        return self._trains[graph]

    def uses_model(self, graph: int) -> bool:
        """Return True if `graph` reads variables."""
        return any(_MODEL.search(node.type) for node in self.graphs[graph].nodes)

    def framework(self, lacks: tuple[str, ...] | None = None) -> Framework:
        """`lacks`: as documents have it."""
        hello = self.process
        return Framework(hello.framework, hello.version, hello.git, hello.python, lacks)

    def settings(self) -> protocol.Device | None:
        """Return the device that the job's steps run on: TensorFlow also makes internal devices,
        which never carry the script's settings."""
        asked = [d for d in self.devices if d.asked_intra or d.asked_inter]
        found = asked or self.devices
        return found[0] if found else None


def _structure(node: protocol.Node) -> tuple[object, ...]:
    """Return all fields except the names of the node and its partners."""
    return node.type, tuple(node.inputs), tuple(node.slots), tuple(node.control)


def op_seconds(execution: protocol.Execution) -> float:
    """Return seconds in the execution's synchronous kernels, summed over its threads."""
    return sum(e[5] - e[4] for e in execution.events if e[2] >= 0) * NANOSECOND


def pauses(starts: Iterable[Iterable[int]]) -> list[float]:
    """Return seconds from the start of each execution to the next start of its graph. `starts`:
    by graph, in nanoseconds."""
    return [(b - a) * NANOSECOND for each in starts for a, b in itertools.pairwise(each)]


def span(execution: protocol.Execution) -> float:
    """Return seconds from the execution's first op to its last."""
    return max((e[5] for e in execution.events), default=0) * NANOSECOND


def main_graph(record: Record) -> int | None:
    """Return the repeating graph with the most op time; graphs that train come first."""
    repeating = [graph for graph, runs in record.runs.items() if runs > 1]
    return max(
        repeating, key=lambda graph: (record.trains(graph), record.seconds[graph]), default=None
    )


def period(
    record: Record, graph: int, before: protocol.Report, after: protocol.Report
) -> float | None:
    """Return mean seconds from one execution of a graph to the next, between two reports; None if
    there are too few executions."""

    def ran(report: protocol.Report) -> int:
        runs = enumerate(report.runs)
        return sum(n for g, n in runs if g in record.graphs and record.same(g) == graph)

    executions, seconds = ran(after) - ran(before), (after.at - before.at) * NANOSECOND
    return seconds / executions if executions >= FEW else None


def step_graphs(record: Record, least_share: float) -> list[int]:
    """Return the graphs whose executions are the job's steps, the most op time first.

    A graph counts when it repeats, has at least `least_share` of the steps' op time, and does not
    overlap with the main graph, as the functions of an input pipeline do. If the main graph
    trains, another counts when it trains too, or when it uses the model in every round, as an
    agent's choice of action does; validation runs in separate rounds. An eager step that differs
    now and then, as at the start of an epoch, counts only if it comes in every round.
    """
    main = main_graph(record)
    if main is None:
        return []
    found = {main: record.seconds[main]}
    for graph, runs in record.runs.items():
        if graph == main or runs < 3 or _beside(record, main, graph):
            continue
        if record.graphs[graph].eager:
            counts = _in_every_round(record, main, graph)
        else:
            counts = (
                record.trains(graph)
                or not record.trains(main)
                or (record.uses_model(graph) and _in_every_round(record, main, graph))
            )
        if counts:
            found[graph] = record.seconds[graph]
    total = sum(found.values())
    chosen = [graph for graph, seconds in found.items() if seconds >= least_share * total]
    return sorted(chosen, key=lambda graph: -found[graph])


def _beside(record: Record, main: int, graph: int) -> bool:
    """Return True if executions of `graph` overlap in time with executions of `main`."""
    busy = [(e.start, e.start + span(e) / NANOSECOND) for e in record.executions[main] if e.events]
    others = [(e.start, e.start + span(e) / NANOSECOND) for e in record.executions[graph]]
    beside = sum(any(a < end and start < b for a, b in busy) for start, end in others)
    return beside * 10 > len(others)


def _in_every_round(record: Record, main: int, graph: int) -> bool:
    starts = sorted(e.start for e in record.executions[main])
    rounds = {bisect_right(starts, e.start) for e in record.executions[graph]}
    between = rounds & set(range(1, len(starts)))
    return len(between) * 2 >= len(starts) - 1
