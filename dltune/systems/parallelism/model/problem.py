"""A network on a topology: the configurations of each operator and their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.configurations import Configuration, require_some
from dltune.systems.parallelism.model.costs import Costs, part
from dltune.systems.parallelism.model.routes import Routes, routes
from dltune.systems.parallelism.schemas.operators import Operator, Operators
from dltune.systems.parallelism.schemas.topology import Topology

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
