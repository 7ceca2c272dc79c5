"""The selection that takes the least time under a budget of bytes, or how far from it one may be.

Moments are added where a solution of the relaxation (`moments.Relaxation`), made an order again,
needs more than the budget, as cutting planes are: its bound rises, its orders come to meet the
budget. Small steps are then solved as they are (`retention.solve`). It begins with what
`selection.select` found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.graph.csr import Amounts, Flags, Integers
from dltune.graph.step_graph import StepGraph
from dltune.memory import retention
from dltune.memory.moments import Relaxation
from dltune.memory.schedule import NOTHING
from dltune.memory.search import Search
from dltune.memory.selection import BudgetTooSmall, Selection, found, select

ADDED = 4  # moments at once
_PART = 0.5  # of the time that is left, for one relaxation
_ENOUGH = 1e-4  # of a step: where bound and plan are the same


@dataclass(frozen=True)
class Exact:
    """`bound`: seconds of computing again that no order with these first runs takes less than;
    `step`: seconds of the step as given."""

    selection: Selection
    bound: float
    step: float

    @property
    def gap(self) -> float:
        """The part of a step that the selection may take longer than the best: the whole step's
        time with what is added, over that with the bound, less 1."""
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
) -> Exact:
    """Arguments as of `select`. Takes about `limit` seconds at most after what `select` takes, and
    less where the gap closes. Where `retention.solve` closes it, the bound is of orders in which
    no node runs more often again than `retention.COPIES`. Raises BudgetTooSmall, and UsageError
    where ortools is not installed."""
    steps = _Steps(graph, order, seconds, again, budget, written)
    end = time.monotonic() + limit
    steps.relax(end)
    if steps.open and not math.isinf(steps.bound) and time.monotonic() < end:
        steps.retain(end)
    if steps.best is None:
        raise BudgetTooSmall(steps.least)
    return Exact(steps.best, min(steps.bound, steps.best.seconds), sum(seconds))


class _Steps:
    def __init__(
        self,
        graph: StepGraph,
        order: Sequence[int],
        seconds: Sequence[float],
        again: Sequence[int],
        budget: int,
        written: Mapping[int, Collection[int]],
    ) -> None:
        self.given = (graph, order, seconds, again, budget, written)
        self.order, self.budget = order, budget
        self.search = Search(graph, order, seconds, again, written)
        self.enough = _ENOUGH * sum(seconds)
        self.bound = 0.0
        self.best: Selection | None = None
        self.least = self.search.now.peak
        try:
            self.best = select(*self.given)
        except BudgetTooSmall as error:
            self.least = error.least

    @property
    def open(self) -> bool:
        return self.best is None or self.best.seconds > self.bound + self.enough

    def relax(self, end: float) -> None:
        relaxation = Relaxation(*self.given)
        moments = [relaxation.peak]
        while self.open and (left := end - time.monotonic()) > 0:
            answer = relaxation.solve(moments, _PART * left, self._nodes())
            self.bound = max(self.bound, answer.bound)
            if answer.kept is None:
                return
            nodes, again = relaxation.run(moments, answer)
            over = self._over(np.array(nodes, np.int32), np.array(again))
            added = [at for at in over if at not in moments][:ADDED]
            if not added:
                return
            moments = sorted({*moments, *added})

    def retain(self, end: float) -> None:
        left = end - time.monotonic()
        answer = retention.solve(*self.given, self.bound, left, self._nodes())
        if answer is None:
            return
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
            # within a gap: the first run that ends it, and the one before
            for one in (first[at] + again[at], first[at]):
                worst.setdefault(min(int(one), len(self.order) - 1), at)
        return _apart(list(worst))

    def _offer(self, nodes: Integers, again: Flags) -> Amounts:
        """The bytes that it needs, by position. Once it is mended, it may be the best."""
        search = self.search
        search.begin(nodes, again)
        level = search.now.level
        most = math.inf if self.best is None else self.best.seconds
        while search.now.peak > self.budget and search.cost < most:
            if not search.shrink():
                break
        if search.now.peak <= self.budget:
            search.tidy(self.budget)
            if search.cost < most:
                self.best = found(search)
        return level


def _apart(places: Sequence[int]) -> list[int]:
    """Those that are far from what stands before them first."""
    near: set[int] = set()
    first: list[int] = []
    rest: list[int] = []
    for one in places:
        (rest if one in near else first).append(one)
        near.update(range(one - 8, one + 9))
    return [*first, *rest]
