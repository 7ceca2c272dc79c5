"""The strategy whose times are least when all of them are added up, by dynamic programming (Jia,
Lin, Qi and Aiken, "Exploring hidden dimensions in parallelizing convolutional neural networks",
2018, which is known as OptCNN).

Nothing overlaps there: the sum has each operator's tasks, forwards and backwards, the adding up of
its weights' gradients, and the data moved along each edge. The least sum is found by elimination:
an operator with one or two neighbours goes, and its least time for each of their configurations is
added to the neighbour or to the edge between both. Parallel edges are added. Chains and networks of
branches that meet again, as Inception's, reduce to nothing. Recurrent layers leave a kernel, whose
operators of one block are then divided alike; should a kernel remain even then, its operators are
settled one by one, from that with the most neighbours on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dltune.systems.parallelism.model.configurations import Configuration
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import Nanoseconds, Problem, Strategy

MOST, FEWEST = 48, 6  # configurations of an operator that are considered
WORK = 1e9  # pairs of tasks, over all pairs of configurations of edges that differ


@dataclass(frozen=True)
class Additive:
    """`cost`: the sum, nanoseconds; `exact`: no strategy of the considered configurations has a
    lower sum."""

    strategy: Strategy
    cost: int
    exact: bool


@dataclass(frozen=True)
class Sums:
    """The terms of the sum. `kept`: by operator the considered configurations; `own`: by operator
    the nanoseconds of each of them; `edges`: producer, consumer, and nanoseconds of the data moved
    between them, shape (configurations of the producer, of the consumer)."""

    kept: tuple[tuple[int, ...], ...]
    own: tuple[Nanoseconds, ...]
    edges: tuple[tuple[int, int, Nanoseconds], ...]

    def cost(self, places: Sequence[int]) -> int:
        """Return the sum for the operators' configurations, given by their places among those
        kept."""
        own = sum(int(times[at]) for times, at in zip(self.own, places, strict=True))
        return own + sum(int(times[places[a], places[b]]) for a, b, times in self.edges)


def strategy(problem: Problem) -> Strategy:
    return solve(problem).strategy


def solve(problem: Problem) -> Additive:
    summed = sums(problem)
    blocks = [operator.block for operator in problem.graph.operators]
    places, exact = least(summed, blocks)
    chosen = tuple(kept[at] for kept, at in zip(summed.kept, places, strict=True))
    return Additive(chosen, summed.cost(places), exact)


def sums(problem: Problem) -> Sums:
    engine = Engine(problem)
    most = _most(problem)
    kept, own = [], []
    known: dict[tuple[object, ...], tuple[tuple[int, ...], Nanoseconds]] = {}
    shared = [operator.weights for operator in problem.graph.operators]
    for n, operator in enumerate(problem.graph.operators):
        # steps of one layer take alike
        like = (
            *(id(problem.forward[n]), id(problem.catalogs[n]), operator.weights),
            operator.dimensions,
        )
        if like not in known:
            members = max(1, shared.count(operator.weights))
            times = engine.alone(n, members)
            some = _simplest(problem.catalogs[n], times, most)
            known[like] = some, times[[*some]]
        kept.append(known[like][0])
        own.append(known[like][1])
    edges = []
    tables: dict[tuple[object, ...], Nanoseconds] = {}
    number = 0
    for n, operator in enumerate(problem.graph.operators):
        for read in operator.inputs:
            given = problem.graph.operators[read.operator]
            alike = (
                *(kept[read.operator], kept[n], id(problem.catalogs[read.operator])),
                *(id(problem.catalogs[n]), given.dimensions, given.element, given.gradient),
                *(operator.dimensions, read.regions),
            )
            if alike not in tables:
                tables[alike] = engine.moved(number, kept[read.operator], kept[n])
            edges.append((read.operator, n, tables[alike]))
            number += 1
    return Sums(tuple(kept), tuple(own), tuple(edges))


def least(summed: Sums, blocks: Sequence[str]) -> tuple[tuple[int, ...], bool]:
    """Return the places of the configurations with the least sum, and True if nothing was settled
    before the rest; if necessary, operators of one of the `blocks` (empty: a separate block) are
    made alike."""
    kernel = _Kernel(summed)
    exact = True
    while kernel.own:
        easy = min(kernel.own, key=lambda n: len(kernel.near[n]))
        if len(kernel.near[easy]) <= 2:
            kernel.eliminate(easy)
            continue
        exact = False
        alike = _alike(kernel, summed, blocks)
        if alike:
            kernel.join(alike)
        else:
            kernel.settle(max(kernel.own, key=lambda n: len(kernel.near[n])))
    return kernel.places(), exact


def _alike(kernel: _Kernel, summed: Sums, blocks: Sequence[str]) -> list[int]:
    """Operators that are left of one block and have the same configurations."""
    found: dict[tuple[object, ...], list[int]] = {}
    for n in kernel.own:
        if blocks[n]:
            found.setdefault((blocks[n], summed.kept[n]), []).append(n)
    return max(found.values(), key=len) if any(len(some) > 1 for some in found.values()) else []


class _Kernel:
    """The rest of the graph. `near`: by operator its neighbours."""

    def __init__(self, summed: Sums) -> None:
        self.own = {n: times.copy() for n, times in enumerate(summed.own)}
        self.near: dict[int, dict[int, NDArray[np.int64]]] = {n: {} for n in self.own}
        for a, b, times in summed.edges:
            self._add(a, b, times)
        # the last to go is the first to be placed: by the places of those that were near it
        self._gone: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []

    def _add(self, a: int, b: int, times: NDArray[np.int64]) -> None:
        """Between two; `times` shape (of a, of b)."""
        if b in self.near[a]:
            times = self.near[a][b] + times
        self.near[a][b], self.near[b][a] = times, times.T

    def _leave(self, n: int) -> list[tuple[int, NDArray[np.int64]]]:
        for other in self.near[n]:
            del self.near[other][n]
        return [*self.near.pop(n).items()]

    def eliminate(self, n: int) -> None:
        around = self._leave(n)
        own = self.own.pop(n)
        match around:
            case []:
                self._gone.append((n, (), np.array(own.argmin())))
            case [(a, times)]:
                all = own[:, None] + times
                self.own[a] += all.min(0)
                self._gone.append((n, (a,), all.argmin(0)))
            case [(a, first), (b, second)]:
                rows = [own[:, None] + first[:, at, None] + second for at in range(first.shape[1])]
                self._add(a, b, np.array([row.min(0) for row in rows]))
                self._gone.append((n, (a, b), np.array([row.argmin(0) for row in rows])))

    def join(self, alike: Sequence[int]) -> None:
        """Into the first of them."""
        first, *rest = alike
        for n in rest:
            for other, times in self._leave(n):
                if other == first:
                    self.own[first] += times.diagonal()
                else:
                    self._add(first, other, times)
            self.own[first] += self.own.pop(n)
            self._gone.append((n, (first,), np.arange(len(self.own[first]))))

    def settle(self, n: int) -> None:
        """For itself, as if each neighbour were as suits it."""
        around = self._leave(n)
        all = self.own.pop(n) + sum(times.min(1) for _, times in around)
        best = all.argmin()
        for other, times in around:
            self.own[other] += times[best]
        self._gone.append((n, (), np.array(best)))

    def places(self) -> tuple[int, ...]:
        placed: dict[int, int] = {}
        for n, near, best in reversed(self._gone):
            placed[n] = int(best[tuple(placed[other] for other in near)])
        return tuple(placed[n] for n in sorted(placed))


def _most(problem: Problem) -> int:
    """Configurations of an operator for which there is time."""
    operators = problem.graph.operators
    edges = {
        (one.dimensions, operators[read.operator].dimensions, read.regions)
        for one in operators
        for read in one.inputs
    }
    pairs = WORK / max(1, len(edges) * problem.devices**2)
    return int(min(max(math.sqrt(pairs), FEWEST), MOST))


def _simplest(catalog: Sequence[Configuration], times: Nanoseconds, most: int) -> tuple[int, ...]:
    """Keep the same configurations for neighbouring operators: those that begin at the first device
    and leave none out come first, then those that divide few dimensions, then those that take
    least."""
    if len(catalog) <= most:
        return tuple(range(len(catalog)))

    def key(n: int) -> tuple[int, ...]:
        one = catalog[n]
        divided = sum(degree > 1 for degree in (*one.degrees, one.replicas))
        return one.start, one.stride, divided, int(times[n])

    return tuple(sorted(sorted(range(len(catalog)), key=key)[:most]))
