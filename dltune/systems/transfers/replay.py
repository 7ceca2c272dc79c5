"""A step under an order of its transfers, in simulation: the section as it is written, edits by
hand included, next to a step without an order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dltune.profile.processes import Receive, receives
from dltune.schemas.profile import Profile, Step
from dltune.simulate.engine import CoreSet, FifoWork, Graph, Link, Timeline
from dltune.simulate.overlap import partition
from dltune.systems.transfers.decide import by_chance, weighed
from dltune.systems.transfers.section import Receiver


def replayed(profile: Profile, step: Step, receiver: Receiver) -> tuple[Timeline, Timeline]:
    """In no order (`by_chance`) and as planned, as the predictions have it: one op at a time, and
    one transfer from each sender. `receiver`: with times, for this step's graph. Raises DltuneError
    when the simulator cannot be built."""
    place = {one.tensor: number for number, one in enumerate(receiver.transfers)}

    def as_planned(one: Receive) -> Receive:
        planned = receiver.transfers[place[one.tensor]]
        return replace(one, sender=planned.sender, seconds=planned.seconds)

    found = receives(profile, step)
    received = [as_planned(one) if one.tensor in place else one for one in found]
    graph, channel, seconds = weighed(profile, step, received)
    count = len(graph)
    op, where = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    for node, over in channel.items():
        op[node], where[node] = -1, 1 + over
    core = CoreSet([FifoWork(each, 1.0, 1) for each in seconds], 1, 1)
    links = [Link(1.0, by_priority=True)] * len(set(channel.values()))  # "bytes" are seconds
    made = Graph(graph.successors, op, np.ones(count))

    def under(order: Iterable[Receive]) -> Timeline:
        priority = np.zeros(count)
        priority[[one.node for one in order]] = range(len(received))
        return made.on([core], links, where, np.asarray(seconds), priority)

    chance = by_chance(partition(graph, channel, seconds))
    last = len(place)
    return (
        under(received[number] for number in chance),
        under(sorted(received, key=lambda one: place.get(one.tensor, last))),
    )
