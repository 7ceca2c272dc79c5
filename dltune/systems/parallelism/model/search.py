"""The search for a short step, and the strategies from which it starts.

`data_parallel`, `single`, `expert` and `random_strategy` are baselines; `strategy` has the least
sum of times, by dynamic programming.
"""

from __future__ import annotations

import math
import random
import random as chance
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dltune.systems.parallelism.model.engine import (
    FOREVER,
    NEVER,
    Chain,
    Engine,
    Leg,
    Walk,
    Workers,
)
from dltune.systems.parallelism.model.problem import (
    Configuration,
    Nanoseconds,
    Problem,
    Strategy,
    sample,
)
from dltune.systems.parallelism.schemas.operators import Operator

# Strategies that people give, from which the search starts (paper, section 8.2.1)
Preference = Callable[[int, Operator, Configuration], tuple[float, ...]]


def data_parallel(problem: Problem) -> Strategy:
    """Every operator divided by samples over as many devices as can be."""

    def preference(_: int, operator: Operator, one: Configuration) -> tuple[float, ...]:
        return _by_samples(operator, one), one.tasks, -one.start

    return _preferred(problem, preference)


def single(problem: Problem) -> Strategy:
    """Put all on the first device, or where an operator cannot be, on as few as possible."""

    def preference(_: int, __: Operator, one: Configuration) -> tuple[float, ...]:
        return -one.tasks, -one.parts, -one.start

    return _preferred(problem, preference)


def expert(problem: Problem) -> Strategy:
    """Return the usual strategy of experts: dense layers of a network of convolutions are divided
    by their weights, all else by samples (Krizhevsky, arXiv 1404.5997); in a recurrent network
    every host has separate samples, and within it each layer is on one device (Wu et al., arXiv
    1609.08144)."""
    graph, topology = problem.graph, problem.topology
    blocks = {name: n for n, name in enumerate({o.block: 0 for o in graph.operators if o.block})}
    hosts = len({device.host for device in topology.devices})
    each = problem.devices // hosts

    def recurrent(at: int, operator: Operator, one: Configuration) -> tuple[float, ...]:
        here = one.start % each == blocks.get(operator.block, at) % each
        return (
            _by_samples(operator, one) if one.tasks == hosts else 0.0,
            float(here and (one.stride == each or hosts == 1)),
            -one.tasks,
            -one.start,
        )

    def convolutional(_: int, operator: Operator, one: Configuration) -> tuple[float, ...]:
        dense = operator.parameter is not None and len(operator.dimensions) == 2
        if dense and operator.parameter is not None:
            return float(one.degrees[operator.parameter]), one.tasks, -one.start
        return _by_samples(operator, one), one.tasks, -one.start

    if not blocks:
        return _preferred(problem, convolutional)
    return _preferred(problem, recurrent, lambda at, op: blocks.get(op.block, at) % each)


def random_strategy(problem: Problem, seed: int) -> Strategy:
    """Any, as likely as any other."""
    generator = chance.Random(seed)
    return tuple(generator.randrange(len(catalog)) for catalog in problem.catalogs)


def _by_samples(operator: Operator, one: Configuration) -> float:
    dimension = sample(operator)
    degree = 1 if dimension is None else one.degrees[dimension]
    return float(degree if one.parts == degree else 0)


def _preferred(
    problem: Problem,
    preference: Preference,
    like: Callable[[int, Operator], int] = lambda _, __: 0,
) -> Strategy:
    """`like`: operators of one catalog for which this is equal prefer the same."""
    known: dict[tuple[int, int], int] = {}
    strategy = []
    both = zip(problem.graph.operators, problem.catalogs, strict=True)
    for at, (operator, catalog) in enumerate(both):
        key = id(catalog), like(at, operator)
        if key not in known:
            best = max((preference(at, operator, c), -n) for n, c in enumerate(catalog))
            known[key] = -int(best[1])
        strategy.append(known[key])
    return tuple(strategy)


TEMPERATURES = (0.0003, 0.0006, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
LEG = 300  # proposals that a chain makes in a round at least
ROUNDS = 32  # at most
LAG = 4  # rounds between those in which who lags goes on from the best
FAR = 8.0  # temperatures above the best
LAST = 5  # of the room, this part is kept to try every neighbour of the best


@dataclass(frozen=True)
class Found:
    """`time`: nanoseconds of a step. `starts`: by name the strategies that the search began with,
    and theirs. `settled`: no other configuration of any one operator makes it shorter, which the
    search had room to try."""

    strategy: Strategy
    time: int
    starts: Mapping[str, tuple[Strategy, int]]
    proposals: int
    seconds: float
    settled: bool


def search(
    problem: Problem,
    starts: Mapping[str, Strategy],
    workers: Workers,
    *,
    seed: int,
    proposals: int | None = None,
    seconds: float = 0.0,
) -> Found:
    """`starts`: strategies by name, one at least. It ends after so many `proposals` if these are
    given, else after `seconds`, of which half without a gain are enough (paper, section 6.2).

    Chains at several temperatures hand their strategies on. Each walks as FlexFlow's does (paper,
    section 6). After every round neighbours in temperature exchange theirs by Metropolis' rule
    (parallel tempering: Geyer, 1991), and from time to time those that lag far behind go on from
    the best. The place of a chain and its neighbours there have no influence: with a budget in
    proposals the same seed gives the same strategy on any number of processes.
    """
    began = time.monotonic()
    chance = random.Random(seed)
    looks = workers.walk([(start, Chain(0, proposals=0)) for start in starts.values()])
    times = [walk.best_time for walk in looks]
    compared = dict(zip(starts, zip(starts.values(), times, strict=True), strict=True))
    best, least = min(compared.values(), key=lambda one: one[1])
    gained = time.monotonic() - began
    if proposals is None:
        room = seconds * workers.count / statistics.fmean(walk.seconds for walk in looks)
    else:
        room = proposals
    count = int(min(max(room / LEG, 1), len(TEMPERATURES)))
    rounds = int(min(max(room / LEG / count, 1), ROUNDS))
    # one after the other as many as do not walk at the same time
    slice = seconds * (1 - 1 / LAST) / rounds / -(-count // workers.count)
    current = [strategy for strategy, _ in sorted(compared.values(), key=lambda one: one[1])]
    current = current[:count]
    while len(current) < count:
        current.append(random_strategy(problem, chance.randrange(2**32)))
    done = 0
    whole = None if proposals is None else proposals - proposals // LAST
    for number in range(rounds):
        now = time.monotonic() - began
        if whole is None and (now > seconds * (1 - 1 / LAST) or now > max(seconds / 2, 2 * gained)):
            break
        share = FOREVER if whole is None else (whole - done) // (rounds - number) // count
        legs: list[Leg] = []
        for strategy, temperature in zip(current, TEMPERATURES, strict=False):
            legs.append((strategy, Chain(chance.randrange(2**63), temperature, share, slice)))
        walks = workers.walk(legs)
        done += sum(walk.proposals for walk in walks)
        shortest = min(walks, key=lambda walk: walk.best_time)
        if shortest.best_time < least:
            best, least = shortest.best, shortest.best_time
            gained = time.monotonic() - began
        order = _exchanged(walks, chance)
        current = [walk.current if walk.current_time < NEVER else best for walk in order]
        if number % LAG == LAG - 1:
            for at, walk in enumerate(order):
                if walk.current_time > least * (1 + FAR * TEMPERATURES[at]):
                    current[at] = best
    share = FOREVER if proposals is None else proposals - done
    rest = max(seconds - (time.monotonic() - began), seconds / LAST)
    (last,) = workers.walk([(best, Chain(0, 0.0, share, rest, moves="every"))])
    if last.best_time < least:
        best, least = last.best, last.best_time
    return Found(
        *(best, least, compared, done + last.proposals),
        *(time.monotonic() - began, last.settled),
    )


def _exchanged(walks: Sequence[Walk], chance: random.Random) -> list[Walk]:
    """From the hottest on each with the next colder one: always where that is the longer, else with
    the probability exp(difference of times x difference of inverse temperatures)."""
    order = list(walks)
    for hot in range(len(order) - 1, 0, -1):
        longer = math.log(order[hot].current_time / order[hot - 1].current_time)
        colder = 1 / TEMPERATURES[hot - 1] - 1 / TEMPERATURES[hot]
        if chance.random() < math.exp(min(0.0, -longer * colder)):
            order[hot - 1], order[hot] = order[hot], order[hot - 1]
    return order


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


def least_sum(problem: Problem) -> Strategy:
    """Return the strategy whose times are least when all of them are added up."""
    return solve(problem).strategy


def solve(problem: Problem) -> Additive:
    """Find the least sum by dynamic programming (Jia, Lin, Qi and Aiken, "Exploring hidden
    dimensions in parallelizing convolutional neural networks", 2018, which is known as OptCNN).

    Nothing overlaps there: the sum has each operator's tasks, forwards and backwards, the adding up
    of its weights' gradients, and the data moved along each edge. The least sum is found by
    elimination: an operator with one or two neighbours goes, and its least time for each of their
    configurations is added to the neighbour or to the edge between both. Parallel edges are added.

    Chains and networks of branches that meet again, as Inception's, reduce to nothing. Recurrent
    layers leave a kernel, whose operators of one block are then divided alike; should a kernel
    remain even then, its operators are settled one by one, from that with the most neighbours on.
    """
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
