"""The parts of a step that a job's other processes run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dltune.documents.profile import tasks
from dltune.job.record import Record

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
    partners = (node.partner for node in record.graphs[graph].nodes)
    return {
        (p.rendezvous, p.sender, p.receiver)
        for p in partners
        if p is not None and tasks(p.sender, p.receiver)
    }
