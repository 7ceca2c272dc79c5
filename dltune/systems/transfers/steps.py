"""The overlap of the transfers of a step that was run with its ops."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dltune.job import protocol
from dltune.job.record import NANOSECOND, span
from dltune.schemas.profile import tensor
from dltune.simulate.overlap import Bounds
from dltune.systems.transfers.section import Receiver


def efficiency(
    execution: protocol.Execution, graph: protocol.Graph, receiver: Receiver
) -> float | None:
    """E of one step (TicTac, equation 3). None where nothing was recorded, nothing planned came, or
    the step was given up before all of that was read."""
    found = bounds(execution, graph, receiver)
    if found is None or not _finished(execution, graph, receiver):
        return None
    return found.efficiency(span(execution) / NANOSECOND)


def bounds(
    execution: protocol.Execution, graph: protocol.Graph, receiver: Receiver
) -> Bounds | None:
    """By the step's own times. A sender's transfers take from the step's begin, when all are asked
    for, until the last has come."""
    senders = {one.tensor: one.sender for one in receiver.transfers}
    loads: dict[str, int] = {}
    for event in execution.events:
        node = graph.nodes[event[0]]
        if node.type == "_Recv" and node.partner is not None:
            sender = senders.get(tensor(node.partner.rendezvous))
            if sender is not None:
                loads[sender] = max(loads.get(sender, 0), event[5])
    if not loads:
        return None
    return Bounds.run(((e[4], e[5]) for e in execution.events if e[2] >= 0), loads.values())


def _finished(execution: protocol.Execution, graph: protocol.Graph, receiver: Receiver) -> bool:
    """Return True if something has run that reads each planned tensor."""
    planned = {one.tensor for one in receiver.transfers}
    ran = [graph.nodes[event[0]] for event in execution.events]
    read = {before for node in ran for before in (*node.inputs, *node.control)}
    return all(
        number in read
        for number, node in enumerate(graph.nodes)
        if node.type == "_Recv" and node.partner and tensor(node.partner.rendezvous) in planned
    )


def stragglers(spans: Sequence[Sequence[float]]) -> float | None:
    """By what part the fastest of several workers ends a step sooner than the slowest (TicTac,
    section 6.3), the median of their steps; None with fewer than two workers. `spans`: by worker,
    seconds of its steps."""
    steps = [*zip(*spans, strict=False)] if len(spans) > 1 else []
    return statistics.median(1 - min(step) / max(step) for step in steps) if steps else None
