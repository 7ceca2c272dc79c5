"""How well the transfers of a step that was run overlapped with its ops."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from dltune.documents.profile import tensor
from dltune.documents.sections.transfers import Receiver
from dltune.job import messages
from dltune.job.record import NANOSECOND
from dltune.overlap.efficiency import Bounds


def efficiency(
    execution: messages.Execution, graph: messages.Graph, receiver: Receiver
) -> float | None:
    """E of one step (TicTac, equation 3), with the bounds of its own op times: computing is the
    time in which at least one op ran, so that these are bounds with several ops at a time, too,
    where transfers take the times that the plan has for them. None where it has none, or nothing
    was recorded."""
    partners = (node.partner for node in graph.nodes if node.type == "_Recv")
    received = {tensor(partner.rendezvous) for partner in partners if partner is not None}
    loads: Counter[str] = Counter()
    for one in receiver.transfers:
        if one.seconds is not None and one.tensor in received:
            loads[one.sender] += round(one.seconds / NANOSECOND)
    if not loads or not execution.events:
        return None
    computing = _union((e[4], e[5]) for e in execution.events if e[2] >= 0)
    bounds = Bounds(computing + loads.total(), max(computing, *loads.values()))
    began, ended = min(e[4] for e in execution.events), max(e[5] for e in execution.events)
    return bounds.efficiency(ended - began)


def stragglers(spans: Sequence[Sequence[float]]) -> float | None:
    """By what part the fastest of several workers ends a step sooner than the slowest (TicTac,
    section 6.3), the median of their steps; None with fewer than two workers. `spans`: by worker,
    seconds of its steps."""
    steps = [*zip(*spans, strict=False)] if len(spans) > 1 else []
    return statistics.median(1 - min(step) / max(step) for step in steps) if steps else None


def _union(spans: Iterable[tuple[int, int]]) -> int:
    """How long at least one of these goes on, each from a start to an end."""
    whole, until = 0, 0
    for start, end in sorted(spans):
        whole += max(0, end - max(start, until))
        until = max(until, end)
    return whole
