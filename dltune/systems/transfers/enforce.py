"""The order of transfers as planned in each process of a job, and what came of it."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.job import protocol
from dltune.job.failures import crash_of
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import sampled_lines
from dltune.job.record import pauses, span
from dltune.plan.attachment import Attachment
from dltune.plan.enforcement import Enforcement, Outcome, Run
from dltune.schemas.profile import task, tasks, tensor
from dltune.stats import relative_spread
from dltune.systems.transfers.cluster import require_planned
from dltune.systems.transfers.section import Receiver, Transfers
from dltune.systems.transfers.show import (
    Sent,
    Stepped,
    TransfersOutcome,
    intent,
    sentences,
)
from dltune.systems.transfers.steps import efficiency, stragglers


@dataclass
class _Worker:
    """A graph of the plan in a process of the job. `graphs`: each can be traced several times."""

    pid: int
    receiver: Receiver
    graphs: dict[int, protocol.Graph] = field(default_factory=dict)
    starts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    efficiencies: list[float] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)


class EnforcedTransfers(Enforcement):
    """The section on transfers in one job, which can be all tasks of a cluster or one."""

    inside = True

    def __init__(self, section: Transfers, run: Run) -> None:
        self.section = section
        self._run = run
        # sections that order the ops of the same graphs have them recorded too
        self._records = "threads" not in run.plan.sections
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
        lines = order_lines(self.section)
        if self._records:
            graphs = dict.fromkeys(receiver.signature for receiver in self.section.receivers)
            lines += sampled_lines(list(graphs))
        return lines

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
        efficiency=statistics.median(worker.efficiencies) if worker.efficiencies else None,
        worst=min(worker.efficiencies, default=None),
        recorded=len(worker.efficiencies),
    )
