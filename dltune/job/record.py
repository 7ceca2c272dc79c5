"""What one process of a job has told so far: its graphs, op keys and executions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from dltune.job import messages

NANOSECOND = 1e-9


@dataclass
class Record:
    """Facts of one process, gathered message by message."""

    process: messages.Plugin
    graphs: dict[int, messages.Graph] = field(default_factory=dict)
    keys: dict[int, messages.Key] = field(default_factory=dict)
    output_bytes: dict[int, int] = field(default_factory=dict)
    executions: dict[int, list[messages.Execution]] = field(
        default_factory=lambda: defaultdict(list)
    )
    devices: list[messages.Device] = field(default_factory=list)
    report: messages.Report | None = None
    complaints: list[str] = field(default_factory=list)

    def add(self, message: messages.Message) -> None:
        if isinstance(message, messages.Graph):
            self.graphs[message.id] = message
        elif isinstance(message, messages.Key):
            self.keys[message.id] = message
        elif isinstance(message, messages.OutputBytes):
            self.output_bytes[message.key] = message.bytes
        elif isinstance(message, messages.Execution):
            self.executions[message.graph].append(message)
        elif isinstance(message, messages.Device):
            self.devices.append(message)
        elif isinstance(message, messages.Report):
            self.report = message
        elif isinstance(message, messages.Complaint):
            self.complaints.append(message.text)

    def settings(self) -> messages.Device | None:
        """The devices that the job's steps run on: TensorFlow also makes some of its own, which
        never carry what a script asked for."""
        asked = [d for d in self.devices if d.asked_intra or d.asked_inter]
        return (asked or self.devices or [None])[0]


def op_seconds(execution: messages.Execution) -> float:
    """Time in the execution's synchronous kernels, summed over its threads."""
    return sum(e[5] - e[4] for e in execution.events if e[2] >= 0) * NANOSECOND


def span(execution: messages.Execution) -> float:
    """Seconds from the execution's first op to its last."""
    return max((e[5] for e in execution.events), default=0) * NANOSECOND


def main_graph(record: Record) -> int | None:
    """The graph with the most op time, first executions (which warm up) left out."""
    totals = {
        graph: sum(map(op_seconds, executions[1:]))
        for graph, executions in record.executions.items()
        if len(executions) > 1
    }
    return max(totals, key=totals.__getitem__, default=None)


def step_graphs(record: Record, least_share: float) -> list[int]:
    """The graphs whose executions are the job's steps, the one with the most op time first.

    A graph counts when it repeats, has at least `least_share` of the steps' op time, and does not
    run inside the executions of the main one: the functions of an input pipeline do.
    """
    main = main_graph(record)
    if main is None:
        return []
    busy = [
        (e.start, e.start + int(span(e) / NANOSECOND)) for e in record.executions[main] if e.events
    ]
    found = {main: sum(map(op_seconds, record.executions[main][1:]))}
    for graph, executions in record.executions.items():
        later = executions[1:]
        if graph == main or len(later) < 2:
            continue
        inside = sum(any(a <= e.start < b for a, b in busy) for e in later[-50:])
        if inside * 2 < len(later[-50:]):
            found[graph] = sum(map(op_seconds, later))
    total = sum(found.values())
    chosen = [graph for graph, seconds in found.items() if seconds >= least_share * total]
    return sorted(chosen, key=lambda graph: -found[graph])
