"""Selections of results to give up and compute again, to fit a step into a budget of bytes.

`select` searches. `exact` takes longer, and reports its distance from the best. Both know bytes,
and op times as they were measured, where SuperNeurons' strategies know layers and segments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.native import solver
from dltune.native.solver import SolverFailed
from dltune.simulate.step_graph import Amounts, Flags, Integers, Kind, Lives, StepGraph
from dltune.systems.memory.model import optimum
from dltune.systems.memory.model.optimum import Relaxation
from dltune.systems.memory.model.schedule import NOTHING, Meter, Step, levels

ROUNDS = 20  # of deciding again, at most
LARGE = 8_000  # nodes; in larger steps nothing is decided again, a round takes minutes
PATIENCE = 5  # rounds in a row that brought nothing
# of the bytes a second that a result is thought to free: standard deviation of the logarithm
_SPREAD = 0.3


@dataclass(frozen=True, eq=False)
class Run:
    """`nodes` as they run, and of each the number of what was decided at once: 0 for the step as
    given. `level`: bytes by position, the most of which are needed at `moment`."""

    nodes: Integers
    group: Integers
    lives: Lives
    level: Amounts
    peak: int
    moment: int

    def better(self, other: Run) -> bool:
        """Return True if the peak is lower, or as high in fewer places."""
        return (self.peak, int((self.level == self.peak).sum())) < (
            other.peak,
            int((other.level == other.peak).sum()),
        )


class Search:
    """`now`: the order that it has come to. Arguments as of `select`.

    It searches over the orders in which a step's nodes run, some of them again. Ours: where the
    most memory is needed, the result is given up that frees the most bytes for a second of
    computing again, until a budget is met. Then needless runs are taken back. Parts of these
    decisions are made again by chance, and kept where that takes less time (large neighbourhood
    search, Shaw 1998).
    """

    def __init__(
        self,
        graph: StepGraph,
        order: Sequence[int],
        seconds: Sequence[float],
        again: Sequence[int],
        written: Mapping[int, Collection[int]],
    ) -> None:
        self.seconds, self.again = seconds, again
        self.meter = Meter(graph, order, written)
        self.reads = graph.reads.lists
        self.producer = graph.tensors.producer.tolist()
        self.alias = graph.tensors.alias.tolist()
        self.held = (graph.tensors.kind == Kind.RESULT)[graph.tensors.alias].tolist()
        self.times = np.array(seconds, np.float64)
        self.groups = 0
        self.now = self.measured(np.array(order, np.int32), np.zeros(len(order), np.int32))

    def begin(self, nodes: Integers, again: Flags) -> None:
        """With another order; `again`: by position, whether it is no first run."""
        group = np.cumsum(again).astype(np.int32)
        self.groups = int(group.max(initial=0))
        self.now = self.measured(nodes, np.where(again, group, 0).astype(np.int32))

    def measured(self, nodes: Integers, group: Integers) -> Run:
        lives = self.meter.lives(nodes, np.flatnonzero(group == 0).astype(np.int64))
        level, _ = levels(lives, len(nodes))
        moment = int(np.argmax(level)) if len(level) else 0
        return Run(nodes, group, lives, level, int(level.max(initial=0)), moment)

    @property
    def cost(self) -> float:
        """Return the seconds of the nodes that run again."""
        return float(self.times[self.now.nodes[self.now.group > 0]].sum())

    def shrink(self, lot: np.random.Generator | None = None) -> bool:
        """Give up one result that is held where the peak is, and not read there. Return True if
        less memory is needed there now, and nowhere more than the peak was. `lot`: by chance
        another than the best."""
        found = list(self._candidates())
        score = np.array([one[0] for one in found])
        if lot is not None:
            score *= np.exp(lot.normal(0.0, _SPREAD, len(score)))
        for number in np.argsort(-score, kind="stable").tolist():
            _, first, nodes = found[number]
            group = np.full(len(nodes), self.groups + 1, np.int32)
            run = self.measured(
                np.insert(self.now.nodes, first, nodes),
                np.insert(self.now.group, first, group),
            )
            if run.better(self.now):
                self.groups += 1
                self.now = run
                return True
        return False

    def descend(self, budget: int) -> None:
        """Gives results up until the budget is met, or none helps."""
        while self.now.peak > budget and self.shrink():
            pass

    def tidy(self, budget: int) -> None:
        """Take back runs that the budget does not need any more, the dearest first: those that were
        decided at once, then node by node."""
        cost = np.bincount(self.now.group, self.times[self.now.nodes])
        for group in np.argsort(-cost, kind="stable").tolist():
            there = self.now.group == group
            if group and there.any():
                self._take_back(there, budget)
        again = np.flatnonzero(self.now.group)
        number = np.arange(len(self.now.nodes))
        for one in again[np.argsort(-self.times[self.now.nodes[again]], kind="stable")].tolist():
            there = number == one
            if self._take_back(there, budget):
                number = number[~there]

    def _take_back(self, there: Flags, budget: int) -> bool:
        run = self.measured(self.now.nodes[~there], self.now.group[~there])
        if run.peak > budget:
            return False
        self.now = run
        return True

    def improve(self, budget: int) -> None:
        """Decide parts again: some that are close together, or some anywhere."""
        lot = np.random.default_rng(0)
        best, least, idle = self.now, self.cost, 0
        for _ in range(ROUNDS if len(self.reads) <= LARGE else 0):
            groups = np.unique(best.group[best.group > 0])
            if not len(groups) or not least or idle == PATIENCE:
                break
            count = max(1, int(len(groups) * lot.uniform(0.02, 0.2)))
            if lot.random() < 0.5:
                chosen = lot.choice(groups, count, replace=False)
            else:
                place = np.array([int(np.argmax(best.group == group)) for group in groups])
                chosen = groups[np.argsort(abs(place - lot.choice(place)), kind="stable")[:count]]
            kept = ~np.isin(best.group, chosen)
            self.now = self.measured(best.nodes[kept], best.group[kept])
            for _ in range(3 * count + 10):
                if self.now.peak <= budget or self.cost >= least or not self.shrink(lot):
                    break
            if self.now.peak <= budget:
                self.tidy(budget)
            idle += 1
            if self.now.peak <= budget and self.cost < least:
                best, least, idle = self.now, self.cost, 0
        self.now = best

    def _candidates(self) -> Iterator[tuple[float, int, list[int]]]:
        """Bytes a second of what could be given up; where it would be computed again, and the
        nodes."""
        now, found = self.now, self.now.lives
        at = now.moment
        done = set(now.nodes[:at].tolist())
        ran = np.cumsum(now.group == 0)
        here = set(found.tensor[(found.begin <= at) & (found.end > at)].tolist())
        uses = self._uses(here)
        alive: dict[int, set[int]] = {}  # by where it would be computed: owners of held memory
        for number in np.flatnonzero((found.begin < at) & (found.end > at + 1)).tolist():
            owner = int(found.tensor[number])
            begin, end = int(found.begin[number]), int(found.end[number])
            within = [(p, tensor) for p, tensor in uses.get(owner, ()) if begin < p < end]
            later = [(p, tensor) for p, tensor in within if p > at]
            if not later or any(p == at for p, _ in within):
                continue
            first = later[0][0]
            if first not in alive:
                there = (found.begin < first) & (found.end > first)
                alive[first] = here.union(found.tensor[there].tolist())
            # later content of the same memory follows by itself
            wanted = {tensor for _, tensor in later if self.producer[tensor] in done}
            nodes = self._nodes(wanted, owner, alive[first], int(ran[first - 1]))
            if nodes:
                cost = sum(self.seconds[node] for node in nodes)
                yield float(found.bytes[number]) / (cost + 1e-9), first, nodes

    def _uses(self, owners: set[int]) -> dict[int, list[tuple[int, int]]]:
        """Return by owner of memory, positions at which one of its tensors is read, and that
        tensor."""
        at, read = self.meter.reads(self.now.nodes)
        owner = self.meter.alias[read]
        wanted = np.isin(owner, list(owners))
        found: dict[int, list[tuple[int, int]]] = {}
        for one, *use in zip(*(row[wanted].tolist() for row in (owner, at, read)), strict=True):
            found.setdefault(one, []).append((use[0], use[1]))
        return found

    def _nodes(self, tensors: set[int], owner: int, alive: set[int], ran: int) -> list[int] | None:
        """Return the nodes that must run, once `ran` of the order have, for these to be there
        again; None where something of it must not run there. `alive`: owners of the memory held at
        the peak or there."""
        found: dict[int, None] = {}
        stack = [(self.producer[tensor], False) for tensor in sorted(tensors, reverse=True)]
        while stack:
            node, ready = stack.pop()
            if ready:
                found.setdefault(node)
                continue
            if node in found:
                continue
            if self.again[node] <= ran:
                return None
            stack.append((node, True))
            for tensor in self.reads[node]:
                root = self.alias[tensor]
                if self.held[tensor] and (root == owner or root not in alive):
                    stack.append((self.producer[tensor], False))
        return list(found)


class BudgetTooSmall(Exception):
    """`least`: the bytes with which the last try ended."""

    def __init__(self, least: int) -> None:
        super().__init__(f"{least} bytes were needed at least")
        self.least = least


@dataclass(frozen=True)
class Selection:
    """`steps`: all nodes in the order given, some of them again. `peak`: bytes. `seconds`: of what
    runs again."""

    steps: Sequence[Step]
    peak: int
    seconds: float


def select(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budget: int,
    written: Mapping[int, Collection[int]] = NOTHING,
) -> Selection:
    """`order`: the nodes as they run. By node `seconds`, its time, and `again`: until how many of
    `order` have run it can run once more (0: never), giving the same and doing nothing else.
    `written`: as of `lives`. The same each time that it is asked. Raises BudgetTooSmall."""
    search = Search(graph, order, seconds, again, written)
    search.descend(budget)
    if search.now.peak > budget:
        raise BudgetTooSmall(search.now.peak)
    search.tidy(budget)
    search.improve(budget)
    return found(search)


def least(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budget: int,
    written: Mapping[int, Collection[int]] = NOTHING,
) -> int:
    """Return the peak to which `select` comes: no more than the budget where that is possible, or
    the least that it finds."""
    search = Search(graph, order, seconds, again, written)
    search.descend(budget)
    return search.now.peak


def found(search: Search) -> Selection:
    steps = [Step(node) for node in search.now.nodes.tolist()]
    return Selection(steps, search.now.peak, search.cost)


ADDED = 4  # moments at once
_PART = 0.5  # of the time that is left, for one relaxation
_ENOUGH = 1e-4  # of a step: where bound and plan are the same


@dataclass(frozen=True)
class Exact:
    """`bound`: seconds of computing again that no order with these first runs takes less than;
    `step`: seconds of the step as given; `failure`: why a solver ended before its time, a
    sentence."""

    selection: Selection
    bound: float
    step: float
    failure: str | None = None

    @property
    def gap(self) -> float:
        """Return the part of a step that the selection can take longer than the best: the whole
        step's time with the additions, over that with the bound, less 1."""
        least = self.step + self.bound
        return (self.step + self.selection.seconds) / least - 1 if least else 0.0


def exact(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budget: int,
    written: Mapping[int, Collection[int]] = NOTHING,
    limit: float = 60.0,
    begin: Selection | None = None,
    fits: Callable[[Selection], bool] = lambda _: True,
) -> Exact:
    """Return the selection that takes the least time under a budget of bytes, or a bound on its
    distance from it. The search begins with the result of `select`, and ends with the best so far
    when a solver fails.

    Arguments as of `select`. `begin`: what `select` found; without, it is asked. `fits`: whether
    a better one will do. Takes about `limit` seconds at most after what `select` takes, and
    less where the gap closes. Where `solve_intervals` closes it, the bound is of orders in which
    no node runs more often again than `optimum.COPIES`. Raises BudgetTooSmall, and UsageError
    where ortools is not installed.

    Moments are added where a solution of the relaxation (`optimum.Relaxation`), made an order
    again, needs more than the budget, as cutting planes are: its bound rises, its orders come to
    meet the budget. Small steps are then solved as they are (`optimum.solve_intervals`).
    """
    steps = _Steps(graph, order, seconds, again, budget, written, limit, begin, fits)
    failure = None
    try:
        steps.relax()
        steps.retain()
    except SolverFailed as error:
        failure = str(error)
    if steps.best is None:
        raise BudgetTooSmall(steps.least)
    return Exact(steps.best, min(steps.bound, steps.best.seconds), sum(seconds), failure)


class _Steps:
    def __init__(
        self,
        graph: StepGraph,
        order: Sequence[int],
        seconds: Sequence[float],
        again: Sequence[int],
        budget: int,
        written: Mapping[int, Collection[int]],
        limit: float,
        begin: Selection | None,
        fits: Callable[[Selection], bool],
    ) -> None:
        self.given = (graph, order, seconds, again, budget, written)
        self.order, self.budget, self.fits = order, budget, fits
        self.search = Search(graph, order, seconds, again, written)
        self.enough = _ENOUGH * sum(seconds)
        self.bound = 0.0
        self.best = begin
        if begin is None:
            try:
                self.best = select(*self.given)
            except BudgetTooSmall as error:
                self.least = error.least
        self.end = time.monotonic() + limit

    @property
    def open(self) -> bool:
        return self.best is None or self.best.seconds > self.bound + self.enough

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def relax(self) -> None:
        relaxation = Relaxation(*self.given)
        moments = [relaxation.peak]
        while self.open and self.left > 0:
            answer = relaxation.solve(moments, _PART * self.left, self._nodes())
            self.bound = max(self.bound, answer.bound)
            if answer.kept is None:
                return
            nodes, again = relaxation.run(moments, answer)
            over = self._over(np.array(nodes, np.int32), np.array(again))
            added = [at for at in over if at not in moments][:ADDED]
            if not added:
                return
            moments = sorted({*moments, *added})

    def retain(self) -> None:
        many = sum(until > 0 for until in self.given[3]) > optimum.LARGEST
        left = self.left
        if many or not self.open or math.isinf(self.bound) or left <= 0:
            return
        given = (*self.given, self.bound, left, self._nodes())
        answer = solver.run(optimum.solve_intervals, *given, limit=left)
        self.bound = max(self.bound, answer.bound)
        if answer.nodes is not None:
            self._offer(np.array(answer.nodes, np.int32), np.array(answer.again))

    def _nodes(self) -> Integers | None:
        if self.best is None:
            return None
        return np.array([step.node for step in self.best.steps], np.int32)

    def _over(self, nodes: Integers, again: Flags) -> list[int]:
        """Where in the order given the most is needed over the budget, the worst first."""
        level = self._offer(nodes, again)
        first = np.cumsum(~again) - 1  # the last that ran first
        over = np.flatnonzero(level > self.budget)
        worst: dict[int, int] = {}
        for at in over[np.argsort(-level[over], kind="stable")].tolist():
            # within a gap: the first run that ends it, and the run before
            for one in (first[at] + again[at], first[at]):
                worst.setdefault(min(int(one), len(self.order) - 1), at)
        return _apart(list(worst))

    def _offer(self, nodes: Integers, again: Flags) -> Amounts:
        """The bytes that it needs, by position. Once it is mended, it can be the best."""
        search = self.search
        search.begin(nodes, again)
        level = search.now.level
        most = math.inf if self.best is None else self.best.seconds
        while search.now.peak > self.budget and search.cost < most:
            if self.left <= 0 or not search.shrink():
                break
        if search.now.peak <= self.budget:
            search.tidy(self.budget)
            if search.cost < most and self.fits(chosen := found(search)):
                self.best = chosen
        return level


def _apart(places: Sequence[int]) -> list[int]:
    """Order the places: first those that are far from their predecessors."""
    near: set[int] = set()
    first: list[int] = []
    rest: list[int] = []
    for one in places:
        (rest if one in near else first).append(one)
        near.update(range(one - 8, one + 9))
    return [*first, *rest]
