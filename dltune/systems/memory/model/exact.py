"""The selection that takes the least time under a budget of bytes, or a bound on its distance from
it.

Moments are added where a solution of the relaxation (`moments.Relaxation`), made an order again,
needs more than the budget, as cutting planes are: its bound rises, its orders come to meet the
budget. Small steps are then solved as they are (`retention.solve`). It begins with the result of
`selection.select`, and ends with the best so far when a solver fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.native import solver
from dltune.native.solver import SolverFailed
from dltune.simulate.step_graph import Amounts, Flags, Integers, StepGraph
from dltune.systems.memory.model import retention
from dltune.systems.memory.model.moments import Relaxation
from dltune.systems.memory.model.schedule import NOTHING
from dltune.systems.memory.model.search import Search
from dltune.systems.memory.model.selection import (
    BudgetTooSmall,
    Selection,
    found,
    select,
)

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
    """Arguments as of `select`. `begin`: what `select` found; without, it is asked. `fits`: whether
    a better one will do. Takes about `limit` seconds at most after what `select` takes, and
    less where the gap closes. Where `retention.solve` closes it, the bound is of orders in which
    no node runs more often again than `retention.COPIES`. Raises BudgetTooSmall, and UsageError
    where ortools is not installed."""
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
        many = sum(until > 0 for until in self.given[3]) > retention.LARGEST
        left = self.left
        if many or not self.open or math.isinf(self.bound) or left <= 0:
            return
        given = (*self.given, self.bound, left, self._nodes())
        answer = solver.run(retention.solve, *given, limit=left)
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
