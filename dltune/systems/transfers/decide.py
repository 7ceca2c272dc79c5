"""From a profile to the order in which each worker is sent its parameters."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dltune.base.errors import UsageError
from dltune.profile.processes import Receive, receives, spread
from dltune.schemas.profile import (
    SERVERS,
    Profile,
    Step,
    job,
)
from dltune.simulate import step_graph
from dltune.simulate.overlap import NANOSECONDS, Bounds, Partition, makespan, partition, tac, tic
from dltune.simulate.step_graph import StepGraph
from dltune.systems.transfers.improved import improved
from dltune.systems.transfers.oracle import node_seconds
from dltune.systems.transfers.section import (
    SHUFFLES,
    Order,
    Prediction,
    Receiver,
    Transfer,
    Transfers,
)

ORDERS: Mapping[Order, Callable[[Partition], list[int]]] = {
    "improved": improved,
    "tac": tac,
    "tic": tic,
}

# seconds for which a link has enough to do with the transfers handed to its transport: with more,
# the transport sends in a different order, with less, the link waits for the next to be handed over
AHEAD = 0.5e-3
WINDOWS = 64 << 10, 1 << 20  # bytes, the least and the most
# the part of a step that an order must bring: less is what holding transfers back costs
WORTH = 0.01


@dataclass(frozen=True)
class Cluster:
    """The cluster that is planned for. `workers` and `servers`: so many instead of those of the
    profile; `bandwidth`: bytes a second of each link instead of the measured rate."""

    workers: int | None = None
    servers: int | None = None
    bandwidth: float | None = None


def decide(profile: Profile, order: Order, cluster: Cluster) -> Transfers:
    """Of several graphs of one task, for the one with the most time. Raises UsageError when the
    profile has no transfers from servers, or does not tell what an order needs."""
    receivers = []
    for step, received in workers(profile, cluster.bandwidth):
        if cluster.servers is not None:
            received = spread(received, cluster.servers)
        receivers.append(_receiver(profile, step, received, order))
    if not receivers:
        raise UsageError(
            "the profile contains no step that receives tensors from a parameter server",
            remedy="profile a worker of a job with parameter servers",
        )
    each = tuple(receivers)
    if cluster.workers is not None:
        names = (f"{job(each[0].task)}/task:{number}" for number in range(cluster.workers))
        each = tuple(msgspec.structs.replace(each[0], task=name) for name in names)
    if any(worthwhile(one, order) for one in each):
        return Transfers(order, each, _window(profile, cluster))
    return Transfers(
        order, each, max(sum(transfer.bytes for transfer in one.transfers) for one in each)
    )


def worthwhile(receiver: Receiver, order: Order) -> bool:
    """Return True if the order is predicted to make a step shorter by more than it costs to keep
    it, or nothing is predicted."""
    seconds = {one.order: one.seconds for one in receiver.predictions}
    return not seconds or seconds[order] < (1 - WORTH) * seconds["none"]


def _window(profile: Profile, cluster: Cluster) -> int:
    """Return the bytes that the slowest link takes in AHEAD."""
    measured = (link.bandwidth for link in profile.links if link.bandwidth is not None)
    bandwidth = cluster.bandwidth or min(measured, default=math.inf)
    least, most = WINDOWS
    return round(min(most, max(least, bandwidth * AHEAD)))


def workers(
    profile: Profile, bandwidth: float | None = None
) -> Iterator[tuple[Step, list[Receive]]]:
    """Yield the step of each task that receives from servers, and its receives."""
    tasks = {SERVERS}
    for step in (*profile.steps, *profile.peers):
        received = receives(profile, step, bandwidth)
        task = received[0].receiver if received else SERVERS
        if job(task) not in tasks and task not in tasks:
            tasks.add(task)
            yield step, received


def _receiver(profile: Profile, step: Step, received: Sequence[Receive], order: Order) -> Receiver:
    task = received[0].receiver
    timed = all(one.seconds is not None for one in received)
    if not timed and order != "tic":
        raise UsageError(
            f"the profile contains no bandwidth to {task}: tensors arrived at the same time, or "
            "independently of their size",
            remedy="pass the network's bandwidth with --bandwidth, or use --order tic, which needs "
            "none",
        )
    part = partition(*weighed(profile, step, received))
    chosen = ORDERS[order](part)
    return Receiver(
        task,
        step.signature,
        tuple(
            Transfer(one.tensor, one.sender, one.bytes, one.seconds)
            for one in (received[place] for place in chosen)
        ),
        *(_predicted(part, order, chosen) if timed else ()),
    )


def weighed(
    profile: Profile, step: Step, received: Sequence[Receive]
) -> tuple[StepGraph, Mapping[int, int], Sequence[float]]:
    """Return the arguments of a `partition`: graph, channels and seconds, with a channel for each
    sender. Raises UsageError when ops wait for each other."""
    senders = sorted({one.sender for one in received})
    seconds = node_seconds(profile, step)
    for one in received:
        seconds[one.node] = one.seconds or 0.0
    channel = {one.node: senders.index(one.sender) for one in received}
    nodes = list(step.nodes)
    for one in received:  # one transfer, whatever waits for it
        for node in one.beside:
            control = (*nodes[node].control, one.node)
            nodes[node] = msgspec.structs.replace(nodes[node], control=control)
    whole = msgspec.structs.replace(step, nodes=tuple(nodes))
    return step_graph.acyclic(whole), channel, seconds


def by_chance(part: Partition) -> list[int]:
    """Return, of orders by chance, the order of median length, which represents no order."""
    chance, places = random.Random(len(part)), range(len(part))
    orders = [chance.sample(places, len(part)) for _ in range(SHUFFLES)]
    return sorted(orders, key=lambda order: makespan(part, order))[SHUFFLES // 2]


def _predicted(
    part: Partition, order: Order, chosen: Sequence[int]
) -> tuple[float, float, tuple[Prediction, ...]]:
    """Bounds and predictions, as in `Receiver`."""
    bounds = Bounds.of(part)
    lengths = {"none": makespan(part, by_chance(part))}
    for name in dict.fromkeys(("tic", "tac", order)):
        lengths[name] = makespan(part, chosen if name == order else ORDERS[name](part))
    return (
        bounds.lower / NANOSECONDS,
        bounds.upper / NANOSECONDS,
        tuple(
            Prediction(name, length / NANOSECONDS, bounds.efficiency(length))
            for name, length in lengths.items()
        ),
    )
