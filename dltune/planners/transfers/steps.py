"""How well the transfers of a step that was run overlapped with its ops."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dltune.documents.profile import tensor
from dltune.documents.sections.transfers import Receiver
from dltune.job import messages
from dltune.job.record import NANOSECOND, span
from dltune.overlap.efficiency import Bounds


def efficiency(
    execution: messages.Execution, graph: messages.Graph, receiver: Receiver
) -> float | None:
    """E of one step (TicTac, equation 3). None where nothing was recorded, or nothing planned
    came."""
    found = bounds(execution, graph, receiver)
    return found.efficiency(span(execution) / NANOSECOND) if found else None


def bounds(
    execution: messages.Execution, graph: messages.Graph, receiver: Receiver
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


def stragglers(spans: Sequence[Sequence[float]]) -> float | None:
    """By what part the fastest of several workers ends a step sooner than the slowest (TicTac,
    section 6.3), the median of their steps; None with fewer than two workers. `spans`: by worker,
    seconds of its steps."""
    steps = [*zip(*spans, strict=False)] if len(spans) > 1 else []
    return statistics.median(1 - min(step) / max(step) for step in steps) if steps else None
