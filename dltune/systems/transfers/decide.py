"""From a profile to the order in which each worker is sent its parameters."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from dltune.base.errors import UsageError
from dltune.profile.processes import Receive, receives, spread
from dltune.schemas.profile import (
    SERVERS,
    Op,
    Profile,
    Step,
    job,
)
from dltune.simulate import step_graph
from dltune.simulate.overlap import (
    NANOSECONDS,
    Bounds,
    Partition,
    makespan,
    partition,
    schedule,
    tac,
    tic,
)
from dltune.simulate.step_graph import StepGraph
from dltune.systems.transfers.section import (
    SHUFFLES,
    Order,
    Prediction,
    Receiver,
    Transfer,
    Transfers,
)


# The time that the ops and transfers of a step take: the paper's time oracle (TicTac, section 5)
def op_seconds(profile: Profile) -> list[float]:
    """By op of the profile, the least measured time of one run, with as many threads as the job
    gave an op, or the next fewer that were measured. 0 for one that waits for something else: it
    takes no computing."""
    return [_least(op, profile.settings.intra) for op in profile.ops]


def node_seconds(profile: Profile, step: Step) -> list[float]:
    """By node, of all its runs in a step."""
    ops = op_seconds(profile)
    return [0.0 if node.op is None else ops[node.op] * node.repeats for node in step.nodes]


def _least(op: Op, threads: int) -> float:
    counts = {time.threads for time in op.times}
    nearest = max((n for n in counts if n <= threads), default=min(counts, default=0))
    return min((time.min for time in op.times if time.threads == nearest), default=0.0)


# orders that are tried: some two seconds for the 363 receives of ResNet-152
LOOKS = 5_000


def improved(partition: Partition, looks: int = LOOKS) -> list[int]:
    """Places of the receives. The better of TIC's and TAC's order, moved while that helps, then
    from shuffled neighbours of the best; the same for the same partition.

    The result is never worse than the paper's orders, and closes what these leave open (ours). A
    step is as long as its worst receive makes it (`overlap.makespan`): the moment at which that
    receive has come, and the work that waits for it or for later ones. Only two kinds of moves make
    a step shorter: a receive before the worst one that made nothing ready goes behind it, or all
    that some ops still need comes before it.
    """
    search = _Search(partition, looks)
    search.descend(min(tac(partition), tic(partition), key=search.length))
    chance = random.Random(len(partition))
    while search.goes_on():
        search.descend(_shaken(search.best, chance))
    return search.best


class _Search:
    def __init__(self, partition: Partition, looks: int) -> None:
        self._partition = partition
        self._left = looks
        self._lower = Bounds.of(partition).lower
        self.best: list[int] = []
        self._shortest: int | None = None

    def goes_on(self) -> bool:
        return self._left > 0 and len(self.best) > 1 and self._shortest != self._lower

    def length(self, order: list[int]) -> int:
        """Its makespan; the best order of all that were asked for is kept."""
        self._left -= 1
        length = makespan(self._partition, order)
        if self._shortest is None or length < self._shortest:
            self._shortest, self.best = length, order
        return length

    def descend(self, order: list[int]) -> None:
        length = self.length(order)
        moved: list[int] | None = order
        while moved and self.goes_on():
            moved = None
            for other in _moves(self._partition, order):
                if not self.goes_on():
                    return
                if (shorter := self.length(other)) < length:
                    order, length, moved = other, shorter, other
                    break


def _moves(partition: Partition, order: list[int]) -> Iterator[list[int]]:
    """Yield orders that can be shorter, derived from the wait of this order's worst receive."""
    came, ready, ends = schedule(partition, order)
    if not len(ends):
        return
    worst = int(ready[int(ends.argmax())])
    early = [receive for receive in order if came[receive] <= worst]
    late = [receive for receive in order if came[receive] > worst]
    # all that some ops still need, the ops with the most work for their transfers first
    missing = partition.needs & (came >= worst)
    cost = missing @ partition.transfer
    waiting = np.flatnonzero(missing.any(axis=1))
    for row in waiting[np.argsort(cost[waiting] / np.maximum(partition.work[waiting], 1))].tolist():
        wanted = set(np.flatnonzero(missing[row]).tolist())
        first = [r for r in early if came[r] < worst]
        rest = [r for r in order if came[r] >= worst]
        yield [*first, *(r for r in rest if r in wanted), *(r for r in rest if r not in wanted)]
    for receive in reversed(early):
        yield [*(r for r in early if r != receive), receive, *late]
        if late:
            yield [*(r for r in early if r != receive), late[0], receive, *late[1:]]


def _shaken(order: list[int], chance: random.Random) -> list[int]:
    """A few receives elsewhere."""
    shaken = list(order)
    for _ in range(chance.randint(1, 3)):
        receive = shaken.pop(chance.randrange(len(shaken)))
        shaken.insert(chance.randrange(len(shaken) + 1), receive)
    return shaken


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
