"""The effect of an order on clusters, networks and batch sizes that the profile is not of.

Steps are simulated (`overlap/cluster.py`) with the profile's op times and the link that was seen. A
server's link is shared by the workers that receive from it at once, as it was where the profile is
of several: the whole link is what one of them saw, times their number.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dltune.base.errors import UsageError
from dltune.profile.processes import Receive, sends, servers_of
from dltune.schemas.profile import Profile
from dltune.simulate.overlap import Partition
from dltune.systems.transfers.decide import (
    ORDERS,
    Cluster,
    weighed,
    workers,
)
from dltune.systems.transfers.forecast import Replica, forecast
from dltune.systems.transfers.improved import improved
from dltune.systems.transfers.planner import GIGABIT
from dltune.systems.transfers.section import Order

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
    """For workers like the first of the profile. Raises UsageError without a bandwidth."""
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
