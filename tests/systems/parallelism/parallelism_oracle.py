"""The tasks of a divided network and their times (Jia, Zaharia and Aiken, 2018, sections 5.1 and
5.2), slowly: positions are counted one by one, and the next task is looked for among all.

Times are whole ns. Bytes are fractions: nothing is rounded but a task's time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from dltune.systems.parallelism.model.problem import Configuration
from dltune.systems.parallelism.schemas.operators import Operator, Operators, Region

# An operator's: (0, operator, forward or backward, task).
# A transfer's: (1, edge, forward or backward, the task that receives, the part that is sent); edges
# are inputs, counted through all operators.
# Of weights: (2, weights, set, stage, the place in the set of the device that sends or updates).
Id = tuple[int, ...]
FORWARD, BACKWARD = 0, 1
IN_HOSTS, BETWEEN_HOSTS, UPDATE = 0, 1, 2


@dataclass(frozen=True)
class Devices:
    """`kinds`, `hosts`: of each. From one (row) to another (column): `channel`, the resource that
    a transfer occupies; `latency` in ns; `ns_per_byte`. A device is the resource of its own
    number. `all_reduce`, `all_to_all`: as those of `Problem`."""

    kinds: Sequence[int]
    hosts: Sequence[int]
    channel: Sequence[Sequence[int]]
    latency: Sequence[Sequence[int]]
    ns_per_byte: Sequence[Sequence[float]]
    update_ns_per_byte: float = 0.0
    all_reduce: float = 0.0
    all_to_all: float = 1.0

    def ns(self, sender: int, receiver: int, bytes: Fraction, times: float = 1.0) -> int:
        rate = Fraction(self.ns_per_byte[sender][receiver]) * Fraction(times)
        return self.latency[sender][receiver] + math.floor(bytes * rate)


@dataclass(frozen=True)
class Choice:
    """A configuration, and what each of its tasks takes on a device of each kind, in ns."""

    configuration: Configuration
    forward: tuple[int, ...]
    backward: tuple[int, ...]


@dataclass
class Task:
    """`after`: what it waits for. `bytes`: what it sends."""

    resource: int
    ns: int
    after: set[Id] = field(default_factory=set)
    bytes: Fraction = Fraction(0)


class Times(NamedTuple):
    ready: int
    start: int
    end: int


class Divided:
    """An operator under a configuration. `on`: the device of each task; part i's replica k is task
    i * replicas + k."""

    def __init__(self, operator: Operator, configuration: Configuration, devices: int) -> None:
        self.operator, self.configuration = operator, configuration
        self.on = configuration.devices(devices)
        self.replicas = configuration.replicas
        self.places = list(itertools.product(*(range(d) for d in configuration.degrees)))

    def positions(self, part: int) -> list[set[int]]:
        """That it has, in each dimension."""
        return [
            set(range(low, high))
            for low, high in self.configuration.part(self.operator, self.places[part])
        ]

    def read(self, part: int, regions: Sequence[Region], sizes: Sequence[int]) -> list[set[int]]:
        """The positions of an input that it reads, in each of the input's dimensions."""
        return [
            set(_region(one, self.positions(part))) & set(range(size))
            for one, size in zip(regions, sizes, strict=True)
        ]

    def tasks_of(self, part: int) -> list[int]:
        return [part * self.replicas + k for k in range(self.replicas)]

    def source(self, part: int, device: int, replica: int) -> int:
        """The task that gives `part` to that `replica` of another on `device`."""
        near = [t for t in self.tasks_of(part) if self.on[t] == device]
        return near[0] if near else self.tasks_of(part)[replica % self.replicas]

    @property
    def shards(self) -> int:
        """Into how many its weights are divided."""
        dimension = self.operator.parameter
        return 1 if dimension is None else self.configuration.degrees[dimension]

    def holders(self, shard: int, count: int) -> list[int]:
        """The tasks that hold this one of `count` shards, each of which is in one of its own."""
        dimension = self.operator.parameter
        return [
            task
            for part, place in enumerate(self.places)
            if dimension is None or place[dimension] == shard * self.shards // count
            for task in self.tasks_of(part)
        ]


def tasks(graph: Operators, strategy: Sequence[Choice], devices: Devices) -> dict[Id, Task]:
    """`strategy`: a choice for each operator."""
    divided = [
        Divided(one, choice.configuration, len(devices.kinds))
        for one, choice in zip(graph.operators, strategy, strict=True)
    ]
    every: dict[Id, Task] = {}
    for o, choice in enumerate(strategy):
        for t, device in enumerate(divided[o].on):
            kind = devices.kinds[device]
            every[0, o, FORWARD, t] = Task(device, max(1, choice.forward[kind]))
            every[0, o, BACKWARD, t] = Task(
                device, max(1, choice.backward[kind]), {(0, o, FORWARD, t)}
            )
    inputs = [(read, o) for o, one in enumerate(graph.operators) for read in one.inputs]
    for edge, (read, o) in enumerate(inputs):
        found = [*meetings(divided[read.operator], divided[o], read.regions)]
        parts = (
            1
            if any(r.of == divided[o].operator.parameter for r in read.regions)
            else divided[o].shards
        )
        for give, take, volume in found:
            bytes = volume * graph.operators[read.operator].element
            here, there = (read.operator, give), (o, take)
            of = math.prod(map(len, divided[read.operator].positions(give)))
            times = devices.all_to_all if volume < of else 1.0
            _carry(every, (1, edge, FORWARD), divided, here, there, bytes, devices, times)
            if graph.operators[read.operator].gradient:
                whole = sum(v for _, other, v in found if other == take)
                times = devices.all_to_all if volume < whole else 1.0
                if devices.all_reduce > 0 and parts > 1:
                    bytes = 2 * whole * graph.operators[read.operator].element // parts
                    times = devices.all_reduce
                way = (1, edge, BACKWARD)
                _carry(every, way, divided, there, here, bytes, devices, times)
    for g, learned in enumerate(graph.weights):
        group = {o: own for o, own in enumerate(divided) if own.operator.weights == g}
        for number, (members, bytes) in enumerate(weight_sets(learned.bytes, list(group.values()))):
            done: dict[int, set[Id]] = {device: set() for device in members}
            for o, own in group.items():
                for t, device in enumerate(own.on):
                    if device in done:
                        done[device].add((0, o, BACKWARD, t))
            every |= _synchronised((2, g, number), members, bytes, done, devices)
    return every


def meetings(
    giver: Divided, reader: Divided, regions: Sequence[Region]
) -> Iterator[tuple[int, int, int]]:
    """A part of one operator, a part of another that reads of it, and of how many positions."""
    sizes = [dimension.size for dimension in giver.operator.dimensions]
    for take in range(len(reader.places)):
        read = reader.read(take, regions, sizes)
        for give in range(len(giver.places)):
            both = zip(giver.positions(give), read, strict=True)
            if volume := math.prod(len(own & wanted) for own, wanted in both):
                yield give, take, volume


def weight_sets(bytes: int, group: Sequence[Divided]) -> list[tuple[list[int], Fraction]]:
    """Devices that add up their gradients to the same weights, and to how many bytes of them.
    Where all of the group are divided alike each replica has sets of its own."""
    alike = len({own.configuration for own in group}) == 1
    replicas = group[0].replicas if alike else 1
    count = math.lcm(*(own.shards for own in group))
    merged: list[tuple[list[list[int]], Fraction]] = []
    for shard in range(count):
        held = [(own.on[t], t % replicas) for own in group for t in own.holders(shard, count)]
        sets = [sorted({device for device, k in held if k == one}) for one in range(replicas)]
        if merged and merged[-1][0] == sets:
            merged[-1] = (sets, merged[-1][1] + Fraction(bytes, count))
        else:
            merged.append((sets, Fraction(bytes, count)))
    return [(members, size) for sets, size in merged for members in sets]


def simulated(tasks: Mapping[Id, Task]) -> dict[Id, Times]:
    """Each resource runs its tasks in the order in which they become ready, of two at one moment
    that of the smaller id first."""
    waiting = dict(tasks)
    times: dict[Id, Times] = {}
    idle_from: dict[int, int] = {}
    ready: dict[Id, int] = {}
    while waiting:
        for name, task in waiting.items():
            if name not in ready and task.after <= times.keys():
                ready[name] = max((times[one].end for one in task.after), default=0)
        name = min(ready.keys() & waiting.keys(), key=lambda one: (ready[one], one))
        task = waiting.pop(name)
        start = max(ready[name], idle_from.get(task.resource, 0))
        times[name] = Times(ready[name], start, start + task.ns)
        idle_from[task.resource] = start + task.ns
    return times


def makespan(times: Mapping[Id, Times]) -> int:
    return max(one.end for one in times.values())


def transferred(tasks: Mapping[Id, Task]) -> Fraction:
    """Bytes, of all transfers and of all hops of rings."""
    return sum((one.bytes for one in tasks.values()), Fraction(0))


def _region(region: Region, positions: Sequence[set[int]]) -> range:
    if region.of is None:
        return range(region.start, region.start + region.extent)
    first, last = min(positions[region.of]), max(positions[region.of])
    return range(
        first * region.stride + region.start,
        last * region.stride + region.start + region.extent,
    )


def _carry(
    every: dict[Id, Task],
    way: tuple[int, int, int],
    divided: Sequence[Divided],
    given: tuple[int, int],
    taken: tuple[int, int],
    bytes: int,
    devices: Devices,
    times: float,
) -> None:
    """From a part (operator, part) to each task of the part that reads it: over a channel, but from
    a task on the same device if there is one."""
    direction = way[2]
    giver, taker = divided[given[0]], divided[taken[0]]
    for replica, task in enumerate(taker.tasks_of(taken[1])):
        to = taker.on[task]
        source = giver.source(given[1], to, replica)
        by = giver.on[source]
        before: Id = (0, given[0], direction, source)
        if by != to:
            transfer = (*way, task, given[1])
            ns = max(1, devices.ns(by, to, Fraction(bytes), times))
            every[transfer] = Task(devices.channel[by][to], ns, {before}, Fraction(bytes))
            before = transfer
        every[0, taken[0], direction, task].after.add(before)


def _synchronised(
    name: Id,
    members: Sequence[int],
    bytes: Fraction,
    done: Mapping[int, set[Id]],
    devices: Devices,
) -> dict[Id, Task]:
    """Rings in hosts, then one between them, then updates. `done`: by device, what runs before."""
    hosts: dict[int, list[int]] = {}
    for device in members:
        hosts.setdefault(devices.hosts[device], []).append(device)
    made: dict[Id, Task] = {}

    def ring(stage: int, among: Sequence[int], after: set[Id]) -> set[Id]:
        hops = set()
        for device, following in zip(among, [*among[1:], among[0]], strict=True):
            share = bytes / len(among)
            steps = 2 * (len(among) - 1)
            ns = max(1, steps * devices.ns(device, following, share, devices.all_reduce or 1.0))
            hop = (*name, stage, members.index(device))
            made[hop] = Task(devices.channel[device][following], ns, set(after), steps * share)
            hops.add(hop)
        return hops

    over: set[Id] = set()
    for own in hosts.values():
        after = set().union(*(done[device] for device in own))
        over |= ring(IN_HOSTS, own, after) if len(own) > 1 else after
    if len(hosts) > 1:
        over = ring(BETWEEN_HOSTS, [own[0] for own in hosts.values()], over)
    if devices.update_ns_per_byte > 0:
        ns = max(1, math.floor(bytes * Fraction(devices.update_ns_per_byte)))
        for place, device in enumerate(members):
            made[*name, UPDATE, place] = Task(device, ns, set(over))
    return made
