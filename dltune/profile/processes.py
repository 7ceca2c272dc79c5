"""Processes of a job: the one that trains, its peers, and the tensors that they exchange."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dltune.job import protocol
from dltune.job.record import Record, main_graph, span, step_graphs
from dltune.schemas.profile import (
    SERVERS,
    Link,
    Profile,
    Step,
    job,
    task,
    tasks,
)

# executions of the main step under the job's own settings: the first few warm up
WARM_UP, OWN = 3, 12
# a long step need not run so often before the climb begins
OWN_SECONDS, OWN_LEAST = 30.0, 3
# a step that takes less of the op time than this is not one to tune
LEAST_SHARE = 0.02
# so long may validation, or the filling of a buffer, go on before it is taken for the step
UNTRAINED_SECONDS = 10.0


@dataclass(frozen=True)
class Steps:
    """The steps of a job: graphs of one process, the one with the most op time first."""

    pid: int
    targets: tuple[int, ...]
    trains: bool


class Discovery:
    """Search for the process that trains and for its graphs that are the steps, in the messages
    that the processes of a job have sent so far."""

    def __init__(
        self,
        records: Mapping[int, Record],
        clock: Callable[[], float] = time.monotonic,
        *,
        xla: bool = False,
        seconds: float = OWN_SECONDS,
        least: int = OWN_LEAST,
    ) -> None:
        """`xla`: whether a graph with XLA's clusters, whose ops cannot be told apart, will do.
        `seconds`, `least`: of warm steps, that are enough where steps are long."""
        self._records = records
        self._clock = clock
        self._xla = xla
        self._seconds, self._least = seconds, least
        self._untrained_since: float | None = None

    @property
    def runs(self) -> int:
        """Executions so far of the graph that looks most like the step."""
        found = self._busiest()
        return self._records[found[0]].runs[found[1]] if found else 0

    def find(self) -> Steps | None:
        """The steps, once they have run often enough; None until then.

        A graph that computes no gradients is taken only when none that does has come in
        `UNTRAINED_SECONDS`.
        """
        found = self._busiest()
        if found is None:
            return None
        pid, main = found
        record = self._records[pid]
        kept = record.executions[main]
        long = sum(map(span, kept[WARM_UP:])) >= self._seconds
        if record.runs[main] <= WARM_UP + (self._least if long else OWN):
            return None
        if not record.trains(main):
            if self._untrained_since is None:
                self._untrained_since = self._clock()
            if self._clock() - self._untrained_since < UNTRAINED_SECONDS:
                return None
        return self._steps(pid, main)

    def salvage(self) -> Steps | None:
        """The steps as far as they can be told now that the job has ended."""
        found = self._busiest()
        return self._steps(*found) if found else None

    def _steps(self, pid: int, main: int) -> Steps:
        record = self._records[pid]
        return Steps(pid, tuple(step_graphs(record, LEAST_SHARE)), record.trains(main))

    def _busiest(self) -> tuple[int, int] | None:
        """The process whose main graph trains and takes the most time, and that graph; a parameter
        server only where there is no other."""
        found = [
            (pid, main)
            for pid, record in self._records.items()
            if (main := main_graph(record)) is not None
            and (self._xla or not record.graphs[main].xla)
        ]
        return max(
            found,
            key=lambda one: self._rank(*one),
            default=None,
        )

    def _rank(self, pid: int, graph: int) -> tuple[bool, bool, float]:
        record = self._records[pid]
        serves = job(task(record.graphs[graph].device)) == SERVERS
        return not serves, record.trains(graph), record.seconds[graph]


# Parts of a step that other processes of the job run

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


# Tensors that a worker's step receives from servers, with their times, and those it sends


@dataclass(frozen=True)
class Receive:
    """A received tensor. `node`: of the step. `beside`: nodes that wait for the tensor with it,
    without reading it; they receive no bytes. `seconds`: its travel time alone; None: unknown from
    the profile."""

    node: int
    tensor: str
    sender: str
    receiver: str
    bytes: int
    seconds: float | None
    beside: tuple[int, ...] = ()


def receives(profile: Profile, step: Step, bandwidth: float | None = None) -> list[Receive]:
    """Return the tensors that a worker's step receives from servers, with their times.

    Each tensor is there once, in the order of the nodes. `bandwidth`: bytes a second of each link
    instead of the measured value. Tensors between workers are left out, and tensors that a server
    sends only after it has received data: there is no order in which they could come at once.
    """
    found: defaultdict[str, list[Receive]] = defaultdict(list)
    for one in _receives(profile.links, step, bandwidth):
        found[one.tensor].append(one)
    whole = [_whole(receives) for receives in found.values()]
    return sorted(whole, key=lambda one: one.node)


def _whole(receives: Sequence[Receive]) -> Receive:
    """Merge the receives of one tensor."""
    whole = max(receives, key=lambda one: one.bytes)
    return replace(whole, beside=tuple(one.node for one in receives if one is not whole))


def _receives(links: Sequence[Link], step: Step, bandwidth: float | None) -> Iterator[Receive]:
    for number, node in enumerate(step.nodes):
        if node.received is None or node.partner is None or node.partner.answer:
            continue
        sender, receiver = node.received
        if job(sender) == job(receiver):
            continue
        size = sum(tensor.bytes for tensor in node.outputs)
        link = _link(links, sender, receiver)
        rate = bandwidth or (link.bandwidth if link else None)
        seconds = (link.each if link else 0.0) + size / rate if rate else None
        yield Receive(number, node.partner.tensor, sender, receiver, size, seconds)


def _link(links: Sequence[Link], sender: str, receiver: str) -> Link | None:
    """Return the link of the two; for an unmeasured worker, its sender's link to another worker."""
    near = [link for link in links if link.sender == sender]
    return next((link for link in near if link.receiver == receiver), near[0] if near else None)


def sends(step: Step) -> list[Receive]:
    """Return the tensors that servers receive from a worker's step, by the nodes that send them:
    gradients, in the order of the nodes."""
    found = []
    for number, node in enumerate(step.nodes):
        tasks = (
            node.partner.tasks if node.type == "_Send" and node.partner and node.inputs else None
        )
        if node.partner is None or tasks is None or job(tasks[0]) == job(tasks[1]):
            continue
        given = step.nodes[node.inputs[0]]
        slot = node.slots[0] if node.slots else 0
        size = given.outputs[slot].bytes if given.outputs else given.output_bytes
        found.append(Receive(number, node.partner.tensor, *tasks, size, None))
    return found


def spread(received: Sequence[Receive], servers: int) -> list[Receive]:
    """Return the receives as if there were so many servers."""
    placed = zip(received, servers_of(received, servers), strict=True)
    return [replace(one, sender=f"{job(one.sender)}/task:{server}") for one, server in placed]


def servers_of(tensors: Sequence[Receive], servers: int) -> list[int]:
    """Return the server of each tensor among so many servers: the server with the fewest bytes when
    the tensor is placed, in the order of the nodes."""
    load, place = [0] * servers, dict[str, int]()
    for one in tensors:
        server = place.setdefault(one.tensor, load.index(min(load)))
        load[server] += one.bytes
    return [place[one.tensor] for one in tensors]
