"""The predicted effect of an order of transfers on a cluster of some size: steps with and without
it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.overlap import Partition, partition
from dltune.simulate.step_graph import Numbers, StepGraph
from dltune.systems.transfers.cluster_times import Cluster, ClusterStep
from dltune.systems.transfers.worker import worker

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
    cluster = Cluster(
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
