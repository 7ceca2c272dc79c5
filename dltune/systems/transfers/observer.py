"""The order of transfers in a benchmark, and how well transfers overlap with ops there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dltune.base.formatting import counted
from dltune.job import protocol
from dltune.job.record import Record
from dltune.plan.observer import Observer
from dltune.schemas.profile import tensor
from dltune.systems.transfers.cluster import require_planned
from dltune.systems.transfers.enforce import order_lines
from dltune.systems.transfers.section import Transfers
from dltune.systems.transfers.steps import efficiency


class TransferObserver(Observer):
    """Measures the efficiency E under every setting, so that settings can be compared.
    `in_force`: the setting is the plan."""

    records_ops = True

    def __init__(self, section: Transfers, *, in_force: bool) -> None:
        self._receivers = {receiver.signature: receiver for receiver in section.receivers}
        self._section = section if in_force else None
        self._efficiencies: list[float] = []

    def require(self, python: protocol.Python) -> None:
        if self._section:
            require_planned(self._section, python.environment)

    def lines(self) -> list[str]:
        return order_lines(self._section) if self._section else []

    def hear(self, record: Record, execution: protocol.Execution) -> None:
        graph = record.graphs[execution.graph]
        receiver = self._receivers.get(graph.signature)
        found = efficiency(execution, graph, receiver) if receiver else None
        if found is not None:
            self._efficiencies.append(found)

    def taken(self) -> tuple[float, ...]:
        found, self._efficiencies = tuple(self._efficiencies), []
        return found

    def faults(self, records: Iterable[Record]) -> Iterator[str]:
        receivers = self._section.receivers if self._section else ()
        planned = {one.tensor for receiver in receivers for one in receiver.transfers}
        nodes = (node for r in records for graph in r.graphs.values() for node in graph.nodes)
        sent = {tensor(n.partner.rendezvous) for n in nodes if n.type == "_Send" and n.partner}
        if missing := planned - sent:
            total = counted(len(planned), "planned tensor")
            yield f"no process of the job sends {len(missing)} of {total}"
