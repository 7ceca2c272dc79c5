"""The predicted effect of an order of transfers on a cluster of some size, by simulation.

Synchronous steps of several workers, and of the servers that hold their parameters, are simulated
with and without the order.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dltune.base.errors import UsageError
from dltune.profile.processes import Receive, sends, servers_of
from dltune.schemas.profile import Profile
from dltune.simulate.engine import CoreSet, FifoWork, Graph, Network
from dltune.simulate.overlap import Partition, partition
from dltune.simulate.step_graph import CSR, Integers, Numbers, StepGraph, complete, reached
from dltune.systems.transfers.decide import ORDERS, Cluster, improved, weighed, workers
from dltune.systems.transfers.section import GIGABIT, Order


@dataclass(frozen=True, eq=False)
class Worker:
    """A worker's step in as few pieces as its transfers allow, to be simulated many times. Tasks:
    receives, then sends, each in the order of the nodes, then pieces of computing. `successors`:
    per task, those that wait for it. `seconds`: per piece.

    Ops that need the same receives and lead to the same sends are one piece: they become ready
    together, and nobody waits for one of them alone.
    """

    receives: int
    sends: int
    successors: CSR
    seconds: Numbers

    @property
    def tasks(self) -> int:
        return len(self.successors)


def worker(
    graph: StepGraph, seconds: Sequence[float], received: Collection[int], sent: Collection[int]
) -> Worker:
    """`seconds`: per node, that an op runs. `received` and `sent`: the nodes that are transfers.
    Raises ValueError when the graph has a cycle."""
    order = complete(graph)
    transfers = {node: task for task, node in enumerate([*sorted(received), *sorted(sent)])}
    needs = reached(order, graph.predecessors.lists, received)
    leads = reached(order[::-1], graph.successors.lists, sent)
    pieces: dict[tuple[int, int], int] = {}
    work: list[float] = []
    task = [0] * len(graph)
    for node in order:
        if node in transfers:
            task[node] = transfers[node]
            continue
        piece = pieces.setdefault((needs[node], leads[node]), len(pieces))
        if piece == len(work):
            work.append(0.0)
        work[piece] += seconds[node]
        task[node] = len(transfers) + piece
    rows: list[set[int]] = [set() for _ in range(len(transfers) + len(pieces))]
    for node, after in enumerate(graph.successors.lists):
        rows[task[node]].update(task[other] for other in after if task[other] != task[node])
    return Worker(len(received), len(sent), CSR.of(map(sorted, rows)), np.array(work))


# computing is counted in seconds of one op
_SECOND = FifoWork(1.0, 1.0, 1)


@dataclass(frozen=True)
class ClusterStep:
    """`seconds`: of the whole step. `ended`: by worker, when it had done the last of its own."""

    seconds: float
    ended: Sequence[float]

    @property
    def waiting(self) -> float:
        """The straggler effect (section 6.3): the part of the step in which the worker that was
        done first waits."""
        return 1.0 - min(self.ended) / self.seconds if self.seconds else 0.0


class SimulatedCluster:
    """`server`: by transfer of a worker, receives first, the number of the server at the other end;
    `alone`: the transfer's seconds where it shares no link.

    All workers run the same graph, one op at a time. A step begins with all of them asking for all
    parameters, and ends when the last op and the last gradient are done: what servers do with
    gradients takes no time (TicTac, section 2.2).

    Each host has one link out and one in. A server and a worker have one transfer under way at once
    (section 5.1), of parameters in the order that the server has for this worker, of gradients as
    they are ready. The servers of one worker and the workers of one server share links.
    """

    def __init__(self, worker: Worker, workers: int, server: Integers, alone: Numbers) -> None:
        self.workers = workers
        self._worker = worker
        transfers, servers = len(server), int(server.max(initial=0)) + 1
        pieces = worker.tasks - transfers
        each = np.arange(workers)[:, None]
        # a channel to each worker from each server, then as many back
        channel = (
            each * servers
            + server
            + np.repeat([0, workers * servers], [worker.receives, worker.sends])
        )
        cores = np.broadcast_to(each, (workers, pieces))
        self._where = np.hstack((workers + channel, cores)).astype(np.int32).ravel()
        self._seconds = np.tile(np.append(alone, np.zeros(pieces)), workers)
        client, host = np.divmod(np.arange(workers * servers, dtype=np.int32), np.int32(servers))
        client += np.int32(servers)
        self._network = Network(np.append(host, client), np.append(client, host))
        own = worker.successors
        starts = (own.offsets[:-1] + each * len(own.items)).ravel()
        successors = CSR(
            np.append(starts, workers * len(own.items)).astype(np.int32),
            (own.items + each * worker.tasks).astype(np.int32).ravel(),
        )
        op = np.repeat([-1, 0], [transfers, pieces]).astype(np.int32)
        runs = np.append(np.zeros(transfers), worker.seconds)
        self._graph = Graph(successors, np.tile(op, workers), np.tile(runs, workers))

    def step(self, places: NDArray[np.integer]) -> ClusterStep:
        """`places`: by worker and receive, the place in its server's order: the lowest first."""
        priority = np.zeros((self.workers, self._worker.tasks))
        priority[:, : self._worker.receives] = places
        made = self._graph.across(
            [CoreSet([_SECOND], cores=1, inter=1)] * self.workers,
            self._network,
            self._where,
            self._seconds,
            priority.ravel(),
        )
        ended = np.array(made.end).reshape(self.workers, -1).max(axis=1)
        return ClusterStep(made.makespan, ended.tolist())

    def ordered(self, order: Sequence[int]) -> ClusterStep:
        """With all workers served in one order of the receives."""
        return self.step(np.argsort(order))

    def by_chance(self, steps: int, seed: int = 0) -> list[ClusterStep]:
        """With an order by chance for each worker and step."""
        chance = np.random.default_rng(seed)
        places = np.tile(np.arange(self._worker.receives), (self.workers, 1))
        return [self.step(chance.permuted(places, axis=1)) for _ in range(steps)]


CHANCES = 21  # steps in which each worker has an order by chance


@dataclass(frozen=True, eq=False)
class Replica:
    """The nodes that each worker runs in a step. `seconds`: per node, that an op runs. `received`
    and `sent`: by node that is a transfer, its bytes. `each`: further seconds that any transfer
    takes."""

    graph: StepGraph
    seconds: Numbers
    received: Mapping[int, int]
    sent: Mapping[int, int]
    each: float = 0.0

    def alone(self, bandwidth: float) -> dict[int, float]:
        """By node, the seconds of a transfer that shares no link."""
        sizes = {**self.received, **self.sent}
        return {node: self.each + size / bandwidth for node, size in sizes.items()}


@dataclass(frozen=True)
class Forecast:
    """`none`: steps in which each worker is served in an order by chance. `ordered`: by the name of
    an order, a step in which all are served in it."""

    none: Sequence[ClusterStep]
    ordered: Mapping[str, ClusterStep]

    @property
    def seconds(self) -> float:
        """Return the seconds of a step without an order, the median."""
        return statistics.median(step.seconds for step in self.none)

    @property
    def waiting(self) -> float:
        """The straggler effect without an order, the median."""
        return statistics.median(step.waiting for step in self.none)

    def gain(self, order: str) -> float:
        """By what part more steps go in a second with this order."""
        return self.seconds / self.ordered[order].seconds - 1.0


def forecast(
    replica: Replica,
    workers: int,
    server: Mapping[int, int],
    bandwidth: float,
    orders: Mapping[str, Callable[[Partition], list[int]]],
    chances: int = CHANCES,
) -> Forecast:
    """`server`: by node that is a transfer, the number of the server at the other end. `bandwidth`:
    of each host's link each way, in bytes a second. An order is found with the times that transfers
    have when all share the links."""
    alone = replica.alone(bandwidth)
    transfers = [*sorted(replica.received), *sorted(replica.sent)]
    cluster = SimulatedCluster(
        worker(replica.graph, replica.seconds.tolist(), replica.received, replica.sent),
        workers,
        np.array([server[node] for node in transfers], np.int32),
        np.array([alone[node] for node in transfers]),
    )
    part = shared(replica, workers, server, bandwidth)
    ordered = {name: cluster.ordered(order(part)) for name, order in orders.items()}
    return Forecast(cluster.by_chance(chances), ordered)


def shared(
    replica: Replica, workers: int, server: Mapping[int, int], bandwidth: float
) -> Partition:
    """One worker's part, while all workers receive from all servers."""
    servers = sorted({server[node] for node in replica.received})
    busy = max(workers, len(servers))
    seconds = replica.seconds.copy()
    for node, taken in replica.alone(bandwidth).items():
        seconds[node] = busy * taken if node in replica.received else 0.0
    channel = {node: servers.index(server[node]) for node in replica.received}
    return partition(replica.graph, channel, seconds.tolist())


WORKERS = (2, 4, 8, 16)
SERVERS = (1, 2, 4)
RATES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0)  # Gbit/s
BATCHES = (0.5, 1.0, 2.0)  # times the profile's
LOOKS = 300  # orders that `improved` tries for each case


@dataclass(frozen=True)
class Case:
    """Seconds of a step without an order, the median, and with it; `gain`: by what part more steps
    go in a second; `waiting`: the part of a step without an order in which the worker that is done
    first waits (TicTac, section 6.3). `bandwidth`: of each task's link, in bytes a second."""

    workers: int
    servers: int
    bandwidth: float
    batch: float
    none: float
    ordered: float
    gain: float
    waiting: float


@dataclass(frozen=True)
class Simulated:
    """`sizes`: clusters with links of `bandwidth`. `networks`: the planned one with other links,
    and batch sizes for which each op takes so many times as long."""

    bandwidth: float
    sizes: tuple[Case, ...]
    networks: tuple[Case, ...]


def simulated(profile: Profile, order: Order, cluster: Cluster) -> Simulated:
    """Predict the effect of an order on clusters, networks and batch sizes that the profile is not
    of, for workers like the first of the profile. Raises UsageError without a bandwidth.

    Steps are simulated with the profile's op times and the link that was seen. A server's link is
    shared by the workers that receive from it at once, as it was where the profile is of several:
    the whole link is what one of them saw, times their number.
    """
    every = list(workers(profile))
    step, received = every[0]
    senders = {one.sender for one in received}
    links = [link for link in profile.links if link.sender in senders]
    seen = [link.bandwidth for link in links if link.bandwidth]
    if not cluster.bandwidth and not seen:
        raise UsageError(
            "--simulate needs the bandwidth of the network, which the profile does not contain",
            remedy="pass the bandwidth with --bandwidth",
        )
    bandwidth = cluster.bandwidth or statistics.median(seen) * len(every)
    sent = sends(step)
    graph, _, times = weighed(profile, step, received)
    replica = Replica(
        graph,
        np.array(times),
        {one.node: one.bytes for one in received},
        {one.node: one.bytes for one in sent},
        statistics.median(link.each for link in links) if links else 0.0,
    )
    chosen = functools.partial(improved, looks=LOOKS) if order == "improved" else ORDERS[order]
    case = functools.partial(_case, replica, received, sent, chosen)
    count, servers = cluster.workers or len(every), cluster.servers or len(senders)
    return Simulated(
        bandwidth,
        tuple(case(w, s, bandwidth, 1.0) for w in WORKERS for s in SERVERS),
        tuple(case(count, servers, rate * GIGABIT, batch) for rate in RATES for batch in BATCHES),
    )


def _case(
    replica: Replica,
    received: Sequence[Receive],
    sent: Sequence[Receive],
    order: Callable[[Partition], list[int]],
    workers: int,
    servers: int,
    bandwidth: float,
    batch: float,
) -> Case:
    server = {
        one.node: number
        for tensors in (received, sent)
        for one, number in zip(tensors, servers_of(tensors, servers), strict=True)
    }
    slower = replace(replica, seconds=batch * replica.seconds)
    found = forecast(slower, workers, server, bandwidth, {"planned": order})
    return Case(
        workers,
        servers,
        bandwidth,
        batch,
        found.seconds,
        found.ordered["planned"].seconds,
        found.gain("planned"),
        found.waiting,
    )
