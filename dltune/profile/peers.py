"""The parts of a step that a job's other processes run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dltune.job import protocol
from dltune.job.record import Record
from dltune.schemas.profile import tasks

Meeting = tuple[str, str, str]  # rendezvous, sender, receiver


def peers(
    measured: Record, targets: Iterable[int], others: Iterable[Record]
) -> Iterator[tuple[Record, int]]:
    """Processes and their graphs that exchange tensors with `targets`, or with one that does. A
    process has one part in each step."""
    seen: set[tuple[int, int]] = set()
    left = list(others)
    for target in targets:
        for record, graph in _parts(_meetings(measured, target), left):
            if (record.process.pid, graph) not in seen:
                seen.add((record.process.pid, graph))
                yield record, graph


def _parts(known: set[Meeting], others: Iterable[Record]) -> Iterator[tuple[Record, int]]:
    left = list(others)
    while True:
        met = [
            (len(known & _meetings(record, graph)), record.runs[graph], index, graph)
            for index, record in enumerate(left)
            for graph in record.executions
        ]
        common, _, index, graph = max(met, default=(0, 0, 0, 0))
        if not common:
            return
        record = left.pop(index)
        known = known | _meetings(record, graph)
        yield record, graph


def _meetings(record: Record, graph: int) -> set[Meeting]:
    return {met for node in record.graphs[graph].nodes if (met := _meeting(node))}


def answers(graphs: Iterable[protocol.Graph]) -> set[Meeting]:
    """What is sent to another task only after something has come from one, as when a server tells
    that it has applied a gradient; not the parameters that it sends at once."""
    return {meeting for graph in graphs for meeting in _answers(graph)}


def _answers(graph: protocol.Graph) -> Iterator[Meeting]:
    reached = {n for n, node in enumerate(graph.nodes) if node.type == "_Recv" and _meeting(node)}
    if not reached:  # of a job with one task, every graph
        return
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        for before in (*node.inputs, *node.control):
            readers.setdefault(before, []).append(number)
    waiting = list(reached)
    while waiting:
        fresh = set(readers.get(waiting.pop(), ())) - reached
        reached |= fresh
        waiting += fresh
    for number in reached:
        node = graph.nodes[number]
        if node.type == "_Send" and (meeting := _meeting(node)):
            yield meeting


def _meeting(node: protocol.Node) -> Meeting | None:
    """With a node of another task."""
    met = node.partner
    between = met and tasks(met.sender, met.receiver)
    return (met.rendezvous, met.sender, met.receiver) if met and between else None
