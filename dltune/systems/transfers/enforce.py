"""The planned order of transfers in each process of a job, and what came of it.

The order can also be compared with others in a benchmark (`TransferObserver`).
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.job import protocol
from dltune.job.failures import crash_of
from dltune.job.launch import Event, Job, Process
from dltune.job.record import NANOSECOND, Record, pauses, span
from dltune.plan.planner import Attachment, Enforcement, Observer, Outcome, Run
from dltune.schemas.profile import job, task, tasks, tensor
from dltune.simulate.overlap import Bounds
from dltune.stats import relative_spread
from dltune.systems.transfers.section import Receiver, Transfers
from dltune.systems.transfers.show import (
    Sent,
    Stepped,
    TransfersOutcome,
    intent,
    sentences,
)

VARIABLE = "TF_CONFIG"


def cluster_tasks(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the tasks of the cluster that a job runs in, as TF_CONFIG names them.

    A task is written as "/job:ps/task:0". The set is empty where no cluster is described in a form
    that is understood.
    """
    try:
        cluster = json.loads(environment.get(VARIABLE, "null"))["cluster"]
        return frozenset(
            f"/job:{name}/task:{number}"
            for name, addresses in cluster.items()
            for number in (addresses if isinstance(addresses, dict) else range(len(addresses)))
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset()


def require_planned(section: Transfers, environment: Mapping[str, str]) -> None:
    """Raises UsageError when the cluster lacks a task of the plan, or has other receivers."""
    there = cluster_tasks(environment)
    receivers = {receiver.task for receiver in section.receivers}
    senders = {t.sender for receiver in section.receivers for t in receiver.transfers}
    missing = sorted((receivers | senders) - there)
    more = sorted(one for one in there - receivers if job(one) in set(map(job, receivers)))
    if there and (missing or more):
        told = [f"lacks {', '.join(missing)}"] if missing else []
        told += [f"also has {', '.join(more)}"] if more else []
        raise UsageError(
            f"the cluster in {VARIABLE} differs from the cluster that the transfers are planned "
            "for: it " + " and ".join(told),
            remedy="plan for this cluster (dltune plan transfers --workers N --ps N), or pass "
            "--partial to order the transfers that still apply",
        )


class Efficiency(NamedTuple):
    """E of a step that was run (TicTac, equation 3), by two bounds on its transfers.

    `own`: a sender's transfers take from the step's begin, when all are asked for, until the last
    has come. Whatever delays them makes this bound longer, and so hides itself. `apart`: they take
    what the plan has, measured without other transfers, above 1 where they were faster than that;
    None where it has no times.
    """

    own: float
    apart: float | None

    @property
    def lower(self) -> float:
        return self.own if self.apart is None else min(self.own, self.apart)


def efficiency(
    execution: protocol.Execution, graph: protocol.Graph, receiver: Receiver
) -> Efficiency | None:
    """Return how well the transfers of a step overlapped with its ops. None where nothing was
    recorded, nothing planned came, or the step was given up before all of that was read."""
    planned = {one.tensor: one for one in receiver.transfers}
    until: dict[str, int] = {}
    came: set[str] = set()
    for event in execution.events:
        node = graph.nodes[event[0]]
        if node.type == "_Recv" and node.partner is not None:
            one = planned.get(tensor(node.partner.rendezvous))
            if one is not None:
                came.add(one.tensor)
                until[one.sender] = max(until.get(one.sender, 0), event[5])
    if not until or not _finished(execution, graph, receiver):
        return None
    ops = [(event[4], event[5]) for event in execution.events if event[2] >= 0]
    length = span(execution) / NANOSECOND
    own = Bounds.run(ops, until.values()).efficiency(length)
    apart: dict[str, float] = defaultdict(float)
    for name in came:
        one = planned[name]
        if one.seconds is None:
            return Efficiency(own, None)
        apart[one.sender] += one.seconds
    loads = [round(seconds / NANOSECOND) for seconds in apart.values()]
    return Efficiency(own, Bounds.run(ops, loads).efficiency(length))


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


@dataclass
class _Worker:
    """A graph of the plan in a process of the job. `graphs`: each can be traced several times."""

    pid: int
    receiver: Receiver
    graphs: dict[int, protocol.Graph] = field(default_factory=dict)
    starts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    efficiencies: list[Efficiency] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)


class EnforcedTransfers(Enforcement):
    """The section on transfers in one job, which can be all tasks of a cluster or one."""

    inside = True

    def __init__(self, section: Transfers, run: Run) -> None:
        self.section = section
        self._run = run
        self.recorded = tuple(receiver.signature for receiver in section.receivers)
        self._planned = {
            receiver.task: {one.tensor: one.sender for one in receiver.transfers}
            for receiver in section.receivers
        }
        self._from = Counter(
            (sender, task) for task, tensors in self._planned.items() for sender in tensors.values()
        )
        # (receiver, the planned sender, the actual sender)
        self._moved: set[tuple[str, str, str]] = set()
        self._attachment = Attachment()
        self._workers: dict[int, _Worker] = {}  # by pid
        self._sent: dict[tuple[str, str], set[str]] = defaultdict(set)
        # by task, of graphs that are not the plan's: a signature, and planned tensors there
        self._strange: dict[str, tuple[str, set[str]]] = {}
        run.needs_plugin()

    def intent(self) -> Iterator[str]:
        return intent(self.section)

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        """Raises UsageError when the job's cluster is another than planned for."""
        if not self._run.partial:
            require_planned(self.section, python.environment)
        return {}

    def greet(self, process: Process) -> Sequence[str]:
        """Every process gets all orders: which task it is shows when it sends."""
        self._attachment.greet(process)
        return order_lines(self.section)

    def look(self, job: Job) -> None:
        """Raises DltuneError when the job runs without the plan."""
        if not (self._workers or self._sent or self._strange):
            self._attachment.look(job)

    def hear(self, job: Job, event: Event) -> None:
        """Raises DltuneError when the plan could not be enforced."""
        self._attachment.hear(event)
        if event.process is None:
            return
        pid = event.process.pid
        if isinstance(event.message, protocol.Execution):
            worker = self._workers.get(pid)
            if worker and event.message.graph in worker.graphs:
                _add(worker, event.message)
        else:
            self._attachment.seen.records[pid].add(event.message)
            if isinstance(event.message, protocol.Graph):
                self._hear_of_graph(pid, event.message)

    def _hear_of_graph(self, pid: int, graph: protocol.Graph) -> None:
        here = task(graph.device)
        for receiver in self.section.receivers:
            if (receiver.task, receiver.signature) == (here, graph.signature):
                worker = self._workers.setdefault(pid, _Worker(pid, receiver))
                worker.graphs[graph.id] = graph
        for node in graph.nodes:
            if node.partner is None:
                continue
            between = tasks(node.partner.sender, node.partner.receiver)
            if between is None or between[1] not in self._planned:
                continue
            name = tensor(node.partner.rendezvous)
            planned = self._planned[between[1]].get(name)
            if planned is not None:
                if planned != between[0]:
                    self._moved.add((between[1], planned, between[0]))
                if node.type == "_Send":
                    self._sent[between].add(name)
                elif not self._run.changed(pid):
                    self._strange.setdefault(between[1], (graph.signature, set()))[1].add(name)

    def ended(self, exit_code: int) -> Outcome:
        """Return the outcome. Raises DltuneError when no process sent or received the planned
        transfers, or one that should receive them ran other graphs."""
        seen = self._attachment.seen
        if crash := crash_of(seen, exit_code):
            raise crash
        known = {worker.receiver.task for worker in self._workers.values()}
        strange = [
            f"{one} ran graphs that the plan is not for, such as {signature}, which receive "
            f"{len(names)} of {counted(len(self._planned[one]), 'planned tensor')}"
            for one, (signature, names) in sorted(self._strange.items())
            if one not in known
        ]
        strange += [
            f"{sender} sends {receiver} tensors that are planned to come from {planned}"
            for receiver, planned, sender in sorted(self._moved)
        ]
        if not (known or strange or self._sent):
            raise self._attachment.why_nothing(
                exit_code, "no process of the job sent or received the tensors that the plan orders"
            )
        if strange and not self._run.partial and exit_code == 0:
            raise UsageError(
                "; ".join(strange),
                remedy="profile the job again and make a new plan, or pass --partial to order the "
                "transfers that still apply",
            )
        workers = [worker for worker in self._workers.values() if worker.starts]
        sent = [
            Sent(*between, len(names), max(self._from[between], len(names)))
            for between, names in sorted(self._sent.items())
        ]
        complaints = (text for record in seen.records.values() for text in record.complaints)
        outcome = TransfersOutcome(
            tuple(map(_stepped, workers)),
            tuple(sent),
            stragglers([worker.spans for worker in workers]),
            (*strange, *dict.fromkeys(complaints)),
        )
        return Outcome(outcome, list(sentences(outcome, self.section)))


def order_lines(section: Transfers) -> list[str]:
    """The section as the plugin reads it."""
    lines = [f"window\t{section.window}"]
    for receiver in section.receivers:
        lines += [f"send\t{receiver.task}\t{one.tensor}" for one in receiver.transfers]
    return lines


def _add(worker: _Worker, execution: protocol.Execution) -> None:
    worker.starts[execution.graph].append(execution.start)
    found = efficiency(execution, worker.graphs[execution.graph], worker.receiver)
    if found is not None:
        worker.efficiencies.append(found)
        worker.spans.append(span(execution))


def _stepped(worker: _Worker) -> Stepped:
    found = pauses(worker.starts.values())
    return Stepped(
        task=worker.receiver.task,
        pid=worker.pid,
        steps=sum(map(len, worker.starts.values())),
        median=statistics.median(found) if found else None,
        spread=relative_spread(found),
        efficiency=_median([one.lower for one in worker.efficiencies]),
        worst=min((one.lower for one in worker.efficiencies), default=None),
        own=_median([one.own for one in worker.efficiencies]),
        apart=_median([one.apart for one in worker.efficiencies if one.apart is not None]),
        recorded=len(worker.efficiencies),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


class TransferObserver(Observer):
    """Measures the efficiency E under every setting, the lower of both, so that settings can be
    compared. `in_force`: the setting is the plan."""

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
            self._efficiencies.append(found.lower)

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
