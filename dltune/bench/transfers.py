"""A plan's order of transfers under one setting, and how well they overlap with ops there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dltune.documents.profile import tensor
from dltune.documents.sections.transfers import Transfers
from dltune.job import messages
from dltune.job.record import Record
from dltune.planners.shown import counted
from dltune.planners.transfers.cluster import require_planned
from dltune.planners.transfers.enforce import order_lines
from dltune.planners.transfers.steps import efficiency


class OrderedTransfers:
    """`section`: the plan's, None where it has none. `ordered`: whether this setting is the plan's;
    E is told of all settings, to be compared."""

    def __init__(self, section: Transfers | None, *, ordered: bool) -> None:
        self._receivers = {one.signature: one for one in section.receivers} if section else {}
        self._section = section if ordered else None
        self._efficiencies: list[float] = []

    def require(self, python: messages.Python) -> None:
        """Raises UsageError when the job's cluster is another than planned for."""
        if self._section:
            require_planned(self._section, python.environment)

    def lines(self) -> list[str]:
        """Orders, once, for every process: which task it is shows when it sends."""
        return order_lines(self._section) if self._section else []

    def hear(self, record: Record, execution: messages.Execution) -> None:
        graph = record.graphs[execution.graph]
        receiver = self._receivers.get(graph.signature)
        found = efficiency(execution, graph, receiver) if receiver else None
        if found is not None:
            self._efficiencies.append(found)

    def taken(self) -> tuple[float, ...]:
        """E of each recorded execution since this was asked last."""
        found, self._efficiencies = tuple(self._efficiencies), []
        return found

    def faults(self, records: Iterable[Record]) -> Iterator[str]:
        """What of the order is not in force, by what processes told of their graphs."""
        receivers = self._section.receivers if self._section else ()
        planned = {one.tensor for receiver in receivers for one in receiver.transfers}
        nodes = (node for r in records for graph in r.graphs.values() for node in graph.nodes)
        sent = {tensor(n.partner.rendezvous) for n in nodes if n.type == "_Send" and n.partner}
        if missing := planned - sent:
            total = counted(len(planned), "planned tensor")
            yield f"no process of the job sends {len(missing)} of {total}"
