"""A network on a topology: the configurations of each operator, and their times."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dltune.base.errors import UsageError
from dltune.systems.parallelism.schemas.operators import MOST_DIMENSIONS, Input, Operator, Operators
from dltune.systems.parallelism.schemas.topology import Kind, Topology

REPLICA = MOST_DIMENSIONS  # the axis of copies, after those of the output's dimensions
ROW_MAJOR = (0, 1, 2, 3, REPLICA)


@dataclass(frozen=True)
class Configuration:
    """An operator as equal parts of its output, each on separate devices.

    `degrees`: into how many parts each of the four dimensions is divided, 1 for those that the
    operator has not. `replicas`: by how many devices each part is computed, each of which then has
    it. Tasks are numbered by the parts' positions in the four dimensions, then by the replica, the
    last fastest; that at (i0, i1, i2, i3, replica) is on the device `start` + `stride` times its
    place when these five are counted through in `order`, the slowest first, modulo the number of
    devices.

    It is one of the divisions of an operator: a point of the SOAP space (Jia, Zaharia and Aiken,
    2018, section 4).
    """

    degrees: tuple[int, int, int, int]
    replicas: int = 1
    start: int = 0
    order: tuple[int, ...] = ROW_MAJOR
    stride: int = 1

    @property
    def parts(self) -> int:
        return math.prod(self.degrees)

    @property
    def tasks(self) -> int:
        return self.parts * self.replicas

    def devices(self, count: int) -> list[int]:
        """Return the device of each task; `count` of them are there."""
        sizes = (*self.degrees, self.replicas)
        steps, step = [0] * len(sizes), self.stride
        for axis in reversed(self.order):
            steps[axis], step = step, step * sizes[axis]
        places = itertools.product(*(range(size) for size in sizes))
        return [
            (self.start + sum(i * s for i, s in zip(place, steps, strict=True))) % count
            for place in places
        ]

    def part(self, operator: Operator, place: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Positions of the part at `place` in each dimension that the operator has: from, to
        below."""
        return tuple(
            (i * dimension.size // degree, (i + 1) * dimension.size // degree)
            for dimension, i, degree in zip(operator.dimensions, place, self.degrees, strict=False)
        )


def soap(operator: Operator, devices: int, hosts: int = 1) -> list[Configuration]:
    """All ways to divide it evenly over one of the equal blocks of the devices, the number of parts
    divides theirs; or over one device of each of so many hosts, where they have as many each."""
    found = []
    for degrees in _degrees(operator, devices):
        parts = math.prod(degrees)
        found += [Configuration(degrees, 1, start) for start in range(0, devices, parts)]
        if parts == hosts > 1 and devices > hosts:
            each = devices // hosts
            found += [Configuration(degrees, 1, start, stride=each) for start in range(each)]
    return found


def mesh(operator: Operator, shape: Sequence[int]) -> list[Configuration]:
    """Return all ways on a mesh of devices of this shape, its last axis the fastest: each axis
    divides one dimension, or has all of its devices compute the same (GSPMD's shardings). Where two
    axes divide the same dimension they are neighbours."""
    found: dict[Configuration, None] = {}
    axes = [
        *(n for n, dimension in enumerate(operator.dimensions) if dimension.kind != "whole"),
        REPLICA,
    ]
    for chosen in itertools.product(axes, repeat=len(shape)):
        runs = [axis for axis, _ in itertools.groupby(chosen)]
        sizes = [1] * (MOST_DIMENSIONS + 1)
        for axis, size in zip(chosen, shape, strict=True):
            sizes[axis] *= size
        fits = all(
            size <= dimension.size
            for size, dimension in zip(sizes, operator.dimensions, strict=False)
        )
        if fits and len(set(runs)) == len(runs):
            rest = [axis for axis in ROW_MAJOR if axis not in runs]
            degrees = (sizes[0], sizes[1], sizes[2], sizes[3])
            found[Configuration(degrees, sizes[REPLICA], 0, (*runs, *rest))] = None
    return [*found]


def sample(operator: Operator) -> int | None:
    """Its dimension of samples."""
    return next((n for n, d in enumerate(operator.dimensions) if d.kind == "sample"), None)


def require_some(operator: Operator, configurations: Sequence[Configuration]) -> None:
    """Raises UsageError when nothing divides it over the devices that there are."""
    if not configurations:
        raise UsageError(
            f"the operator {operator.name!r} cannot be divided over these devices",
            remedy="give the operator a dimension that can be divided, or use other devices",
        )


def _degrees(operator: Operator, devices: int) -> Iterator[tuple[int, int, int, int]]:
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    choices = [
        [1] if d.kind == "whole" else [n for n in divisors if n <= d.size]
        for d in operator.dimensions
    ]
    choices += [[1]] * (MOST_DIMENSIONS - len(choices))
    for degrees in itertools.product(*choices):
        if devices % math.prod(degrees) == 0:
            yield (degrees[0], degrees[1], degrees[2], degrees[3])


@dataclass(frozen=True)
class Part:
    """The largest part that a division leaves. `output`: its positions in each dimension; `inputs`:
    those that it reads of each input; `share`: of the whole output; `weights`: bytes that it
    needs."""

    output: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    share: float
    weights: float
    bytes: int


class Costs(Protocol):
    """Seconds forwards and backwards of an operator's part on a kind of device."""

    def __call__(self, operator: Operator, part: Part, kind: Kind, /) -> tuple[float, float]: ...


def part(graph: Operators, operator: Operator, degrees: Sequence[int]) -> Part:
    output = tuple(-(-d.size // n) for d, n in zip(operator.dimensions, degrees, strict=False))
    inputs = tuple(_read(graph, read, output) for read in operator.inputs)
    whole = math.prod(d.size for d in operator.dimensions)
    weights = 0.0
    if operator.weights is not None:
        divided = 1 if operator.parameter is None else degrees[operator.parameter]
        weights = graph.weights[operator.weights].bytes / divided
    bytes = operator.element * math.prod(output)
    for read, shape in zip(operator.inputs, inputs, strict=True):
        bytes += graph.operators[read.operator].element * math.prod(shape)
    return Part(output, inputs, math.prod(output) / whole, weights, bytes)


def _read(graph: Operators, read: Input, output: Sequence[int]) -> tuple[int, ...]:
    shape = []
    for region, given in zip(read.regions, graph.operators[read.operator].dimensions, strict=True):
        size = region.extent
        if region.of is not None:
            size += (output[region.of] - 1) * region.stride
        shape.append(min(size, given.size))
    return tuple(shape)


def roofline(operator: Operator, part: Part, kind: Kind) -> tuple[float, float]:
    """Return the time of its operations or its bytes at the device's peaks, whichever is more, plus
    the fixed time of every op (Williams, Waterman and Patterson, 2009). An operator that looks up
    rows of weights moves these alone. Backwards the bytes move twice."""
    weights = part.weights if operator.flops else 0.0
    seconds = []
    for flops, passes in ((operator.flops, 1), (operator.backward_flops, 2)):
        work = part.share * flops / kind.flops
        moved = passes * (part.bytes + weights) / kind.bandwidth
        seconds.append(kind.overhead + max(work, moved) / kind.share)
    forward, backward = seconds
    return forward, backward if operator.backward_flops or operator.gradient else 0.0


NOMINAL = 2**20  # bytes, whose time over a link says how long the link is


@dataclass(frozen=True)
class Routes:
    """For each ordered pair of devices, shape (devices, devices): the `channel` that a transfer
    keeps busy, seconds of `latency`, and `per_byte`, seconds. Resources are numbered on from the
    devices: `channels` has each channel's name.

    The way of data from one device to another is the shortest path, held up by its slowest link.
    """

    channel: NDArray[np.int32]
    latency: NDArray[np.float64]
    per_byte: NDArray[np.float64]
    channels: tuple[str, ...]


def routes(topology: Topology) -> Routes:
    """Raises UsageError when two devices have no path between them."""
    count = len(topology.devices)
    names = [*(device.name for device in topology.devices), *topology.switches]
    place = {name: n for n, name in enumerate(names)}
    ways: list[list[tuple[int, int, float, float]]] = [[] for _ in names]
    channels: list[str] = []
    for link in topology.links:
        a, b = (place[end] for end in link.ends)
        for n, (here, there) in enumerate(((a, b), (b, a))):
            if n == 0 or not link.shared:
                arrow = "-" if link.shared else ">"
                channels.append(f"{names[here]} {arrow} {names[there]}")
            ways[here].append((there, count + len(channels) - 1, link.latency, link.bandwidth))
    channel = np.zeros((count, count), np.int32)
    latency, per_byte = np.zeros((count, count)), np.zeros((count, count))
    for here in range(count):
        paths = _paths(ways, here)
        for there in range(count):
            if there == here:
                continue
            if there not in paths:
                raise UsageError(
                    f"the topology has no path from {names[here]} to {names[there]}",
                    remedy="add the missing link, or remove the device",
                )
            seconds, narrowest, across = paths[there]
            latency[here, there], per_byte[here, there] = seconds, 1.0 / narrowest
            channel[here, there] = across if topology.overlap else here
    return Routes(channel, latency, per_byte, tuple(channels))


def _paths(
    ways: list[list[tuple[int, int, float, float]]], start: int
) -> dict[int, tuple[float, float, int]]:
    """By node: latency, least bandwidth and the channel that has it, on the shortest path."""
    paths: dict[int, tuple[float, float, int]] = {}
    turn = itertools.count()  # of paths as long, the first
    queue = [(0.0, next(turn), start, 0.0, float("inf"), -1)]
    while queue:
        length, _, here, seconds, narrowest, across = heapq.heappop(queue)
        if here in paths:
            continue
        paths[here] = seconds, narrowest, across
        for there, channel, latency, bandwidth in ways[here]:
            if there not in paths:
                least = (bandwidth, channel) if bandwidth < narrowest else (narrowest, across)
                step = length + latency + NOMINAL / bandwidth
                queue_entry = (step, next(turn), there, seconds + latency, *least)
                heapq.heappush(queue, queue_entry)
    return paths


Nanoseconds: TypeAlias = NDArray[np.int64]
Space: TypeAlias = Callable[[Operator, int], list[Configuration]]
LONGEST = 1e6  # seconds of an operator: those of all of them in nanoseconds are to fit into 64 bits
Strategy: TypeAlias = tuple[int, ...]  # by operator the place of its configuration in its catalog


@dataclass(frozen=True)
class Problem:
    """`catalogs`: by operator its configurations; operators with equal ones share the list.
    `forward` and `backward`: by operator the nanoseconds of a task, shape (configurations, kinds of
    device). `update`: seconds a byte of weights takes to be updated, on each device that holds
    it. `all_reduce`: 0 where gradients of what several parts read are sent to where they are kept,
    as in the paper. Else these parts add them up whole, as XLA does on CPUs, and a byte that is
    added up takes so many times as long as one of a piece. `all_to_all`: the same of a piece that
    is not the whole of a part."""

    graph: Operators
    topology: Topology
    catalogs: Sequence[Sequence[Configuration]]
    forward: Sequence[Nanoseconds]
    backward: Sequence[Nanoseconds]
    routes: Routes
    update: float = 0.0
    all_reduce: float = 0.0
    all_to_all: float = 1.0

    @property
    def devices(self) -> int:
        return len(self.topology.devices)

    def configuration(self, strategy: Strategy, operator: int) -> Configuration:
        return self.catalogs[operator][strategy[operator]]


def problem(
    graph: Operators,
    topology: Topology,
    space: Space,
    costs: Costs,
    update: float = 0.0,
    all_reduce: float = 0.0,
    all_to_all: float = 1.0,
) -> Problem:
    """`space`: all configurations of an operator on so many devices. Raises UsageError when an
    operator has none, or takes longer than `LONGEST`, or devices have no path between them."""
    count = len(topology.devices)
    catalogs: dict[tuple[object, ...], list[Configuration]] = {}
    times: dict[tuple[object, ...], tuple[Nanoseconds, Nanoseconds]] = {}
    by_operator, forward, backward = [], [], []
    for operator in graph.operators:
        catalog = catalogs.get(operator.dimensions)
        if catalog is None:
            catalog = catalogs[operator.dimensions] = space(operator, count)
        require_some(operator, catalog)
        by_operator.append(catalog)
        # steps of one layer read as much, each its own part, and take alike
        reads = tuple(
            (one.extent, one.of, one.stride, dimension.size)
            for read in operator.inputs
            for one, dimension in zip(
                read.regions, graph.operators[read.operator].dimensions, strict=True
            )
        )
        like = (
            *(operator.type, operator.dimensions, operator.flops, operator.backward_flops),
            *(operator.weights, operator.element, operator.gradient, reads),
        )
        if like not in times:
            times[like] = _times(graph, operator, catalog, topology, costs)
        forward.append(times[like][0])
        backward.append(times[like][1])
    ways = routes(topology)
    times_of_bytes = update, all_reduce, all_to_all
    return Problem(graph, topology, by_operator, forward, backward, ways, *times_of_bytes)


def _times(
    graph: Operators,
    operator: Operator,
    catalog: Sequence[Configuration],
    topology: Topology,
    costs: Costs,
) -> tuple[Nanoseconds, Nanoseconds]:
    of_degrees: dict[tuple[int, ...], list[tuple[float, float]]] = {}
    rows = []
    for configuration in catalog:
        degrees = configuration.degrees
        if degrees not in of_degrees:
            largest = part(graph, operator, degrees)
            of_degrees[degrees] = [costs(operator, largest, kind) for kind in topology.kinds]
        rows.append(of_degrees[degrees])
    seconds = np.array(rows)
    if seconds.max() > LONGEST:
        kind = topology.kinds[int(seconds.max(axis=(0, 2)).argmax())].name
        raise UsageError(
            f"the operator {operator.name!r} takes {seconds.max():.3g} s on a {kind!r}; at most "
            f"{LONGEST:g} s can be simulated",
            remedy="state flops and bandwidth of the topology per second, such as 1.06e13 for 10.6 "
            "Tflop/s",
        )
    both = np.maximum(np.rint(seconds * 1e9), 1).astype(np.int64)
    return both[:, :, 0], both[:, :, 1]
