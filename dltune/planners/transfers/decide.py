"""From a profile to the order in which each worker is sent its parameters."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dltune.documents.profile import SERVERS, Profile, Step, job
from dltune.documents.sections.transfers import (
    SHUFFLES,
    Order,
    Prediction,
    Receiver,
    Transfer,
    Transfers,
)
from dltune.errors import UsageError
from dltune.graph import profiled
from dltune.overlap.efficiency import Bounds, makespan
from dltune.overlap.improved import improved
from dltune.overlap.partition import NANOSECONDS, Partition, partition
from dltune.overlap.tictac import tac, tic
from dltune.planners.transfers.oracle import node_seconds
from dltune.planners.transfers.receives import Receive, receives, spread

ORDERS: Mapping[Order, Callable[[Partition], list[int]]] = {
    "improved": improved,
    "tac": tac,
    "tic": tic,
}

# seconds for which a link has enough to do with what was handed to its transport: with more, the
# transport sends in an order of its own, with less, the link waits for the next to be handed over
AHEAD = 0.5e-3
WINDOWS = 64 << 10, 1 << 20  # bytes, the least and the most


@dataclass(frozen=True)
class Cluster:
    """What is planned for. `workers` and `servers`: so many instead of those of the profile;
    `bandwidth`: bytes a second of each link instead of what was measured."""

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
            "the profile has no transfers: none of its steps receives tensors from a server",
            remedy="profile a worker of a job whose parameters live on servers",
        )
    each = tuple(receivers)
    if cluster.workers is not None:
        names = (f"{job(each[0].task)}/task:{number}" for number in range(cluster.workers))
        each = tuple(msgspec.structs.replace(each[0], task=name) for name in names)
    return Transfers(order, each, _window(profile, cluster))


def _window(profile: Profile, cluster: Cluster) -> int:
    """What the slowest link takes in AHEAD."""
    measured = (link.bandwidth for link in profile.links if link.bandwidth is not None)
    bandwidth = cluster.bandwidth or min(measured, default=math.inf)
    least, most = WINDOWS
    return round(min(most, max(least, bandwidth * AHEAD)))


def workers(
    profile: Profile, bandwidth: float | None = None
) -> Iterator[tuple[Step, list[Receive]]]:
    """The step of each task that receives from servers, and what it receives."""
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
            f"the profile tells of no bandwidth to {task}: tensors came together, or whatever "
            "their size",
            remedy="name the network's with --bandwidth, or choose --order tic, which needs none",
        )
    part = _partition(profile, step, received)
    chosen = ORDERS[order](part)
    return Receiver(
        task,
        step.signature,
        tuple(_transfers([received[place] for place in chosen])),
        *(_predicted(part, order, chosen) if timed else ()),
    )


def _transfers(received: Sequence[Receive]) -> Iterator[Transfer]:
    """Each tensor once. What a step waits for without reading it has a receive of no bytes beside
    that of the tensor itself, and both have their turn together."""
    whole: dict[str, Receive] = {}
    for one in received:
        before = whole.setdefault(one.tensor, one)
        if one.bytes > before.bytes:
            whole[one.tensor] = one
    return (Transfer(one.tensor, one.sender, one.bytes, one.seconds) for one in whole.values())


def _partition(profile: Profile, step: Step, received: Sequence[Receive]) -> Partition:
    """With a channel for each sender. Raises UsageError when ops wait for each other."""
    senders = sorted({one.sender for one in received})
    seconds = node_seconds(profile, step)
    for one in received:
        seconds[one.node] = one.seconds or 0.0
    channel = {one.node: senders.index(one.sender) for one in received}
    return partition(profiled.acyclic(step), channel, seconds)


def _predicted(
    part: Partition, order: Order, chosen: Sequence[int]
) -> tuple[float, float, tuple[Prediction, ...]]:
    """Bounds and predictions, as in `Receiver`; "none" is the median of orders by chance."""
    bounds = Bounds.of(part)
    chance, places = random.Random(len(part)), range(len(part))
    by_chance = [makespan(part, chance.sample(places, len(part))) for _ in range(SHUFFLES)]
    lengths = {"none": statistics.median(by_chance)}
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
