"""Small steps to the optimum: when each result is held, as intervals for a constraint solver.

As in MOCCASIN (Bartan et al., ICML 2023) a variable says when a node runs for the k-th time and
another until when what it gives is retained; the intervals share the budget as a cumulative
resource. There a node has one place in each stage; here what runs again may do so at any place
between two first runs, in any order and several times.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dltune.simulate.step_graph import Integers, Kind, StepGraph
from dltune.systems.memory.model.schedule import Step, lives

COPIES = 3  # number of times that a node can run again
LARGEST = 120  # nodes that can run again, for which it is worth trying
_THREADS = 2
_UNITS = 10**7  # of a step's time, in which the solver counts


@dataclass(frozen=True)
class Answer:
    """`bound`: seconds. `nodes` as they run, and by position whether it is `again`; None where no
    order was found."""

    bound: float
    nodes: Sequence[int] | None
    again: Sequence[bool]


def solve(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budget: int,
    written: Mapping[int, Collection[int]],
    bound: float,
    limit: float,
    begin: Integers | None,
) -> Answer:
    """Arguments as of `selection.select`. `bound`: seconds below which nobody can go; `begin`: an
    order that meets the budget, if one is known. Imports ortools: for `solver.run` alone."""
    from ortools.sat.python import cp_model

    unit = max(sum(seconds), 1e-12) / _UNITS
    model = cp_model.CpModel()
    runs = _Runs(model, graph, order, again)
    _retained(runs, budget, _variables(graph, order, written))
    # rounded down, so that the bound is one
    cost = sum(
        int(seconds[node] / unit) * run.there for node, row in runs.of.items() for run in row[1:]
    )
    model.add(cost >= int(bound / unit) - sum(map(len, runs.of.values())))
    model.minimize(cost)
    if begin is not None:
        runs.hint(begin.tolist())
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = _THREADS
    solver.parameters.max_time_in_seconds = limit
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        impossible = status == cp_model.INFEASIBLE
        return Answer(float("inf") if impossible else bound, None, ())
    ran = sorted(
        (solver.value(run.at), number == 0, node)
        for node, row in runs.of.items()
        for number, run in enumerate(row)
        if number == 0 or solver.value(run.there)
    )
    best = solver.best_objective_bound * unit
    if status == cp_model.OPTIMAL:
        best = sum(seconds[node] for _, first, node in ran if not first)
    return Answer(max(bound, best), [node for *_, node in ran], [not first for _, first, _ in ran])


@dataclass(frozen=True)
class _Run:
    """One run of a node: whether it is `there`, when, and by tensor until when it is retained."""

    there: Any
    at: Any
    until: Mapping[int, Any]


class _Runs:
    """The runs of nodes. Moments are counted so that there is room for a run of each node, and one
    more, before each first run. Nodes that run at one moment do not depend on each other: one after
    the other they take no more."""

    def __init__(
        self, model: Any, graph: StepGraph, order: Sequence[int], again: Sequence[int]
    ) -> None:
        tensors = graph.tensors
        self.model, self.graph = model, graph
        self.held = (tensors.kind == Kind.RESULT)[tensors.alias].tolist()
        self.gives: list[list[int]] = [[] for _ in range(len(graph))]
        for one, node in enumerate(tensors.producer.tolist()):
            if self.held[one]:
                self.gives[node].append(one)
        self.width = len(order) + 1
        self.end = self.width * len(order) + 1
        self.first = {node: (number + 1) * self.width - 1 for number, node in enumerate(order)}
        self.of = {node: self._all(node, again[node] * self.width - 1) for node in order}

    def _all(self, node: int, last: int) -> list[_Run]:
        model, begin = self.model, self.first[node]
        row = [self._one(node, model.new_constant(1), model.new_constant(begin))]
        if last > begin:
            for _ in range(COPIES):
                at = model.new_int_var(begin + 1, last, "")
                row.append(self._one(node, model.new_bool_var(""), at))
        for one, next in itertools.pairwise(row[1:]):
            model.add_implication(next.there, one.there)
            model.add(next.at > one.at).only_enforce_if(next.there)
        return row

    def _one(self, node: int, there: Any, at: Any) -> _Run:
        return _Run(
            there, at, {one: self.model.new_int_var(0, self.end, "") for one in self.gives[node]}
        )

    def hint(self, nodes: Sequence[int]) -> None:
        ran = dict.fromkeys(self.of, 0)
        at = 0
        places: dict[tuple[int, int], int] = {}
        for node in nodes:
            at = at + 1 if ran[node] else self.first[node]
            places[node, ran[node]] = at
            ran[node] += 1
        for node, row in self.of.items():
            for number, run in enumerate(row[1:], 1):
                self.model.add_hint(run.there, number < ran[node])
                if number < ran[node]:
                    self.model.add_hint(run.at, places[node, number])


def _retained(runs: _Runs, budget: int, variables: Sequence[tuple[int, int, int]]) -> None:
    """Add the constraints: a result that is read is retained until then, and all that is retained
    at once meets the budget. `variables`: first runs from and to which bytes are held."""
    model, tensors = runs.model, runs.graph.tensors
    alias, producer, bytes = (
        tensors.alias.tolist(),
        tensors.producer.tolist(),
        tensors.bytes.tolist(),
    )
    intervals, sizes = [], []
    for node, row in runs.of.items():
        reads = sorted({one for one in runs.graph.reads.lists[node] if runs.held[one]})
        for run in row:
            for tensor, until in run.until.items():
                model.add(until > run.at).only_enforce_if(run.there)
                if alias[tensor] == tensor and bytes[tensor]:
                    size = model.new_int_var(1, runs.end, "")
                    intervals.append(
                        model.new_optional_interval_var(run.at, size, until, run.there, "")
                    )
                    sizes.append(bytes[tensor])
            for tensor in reads:
                picks = []
                for source in runs.of[producer[tensor]]:
                    pick = model.new_bool_var("")
                    picks.append(pick)
                    model.add_implication(pick, source.there)
                    model.add(source.at < run.at).only_enforce_if(pick)
                    model.add(source.until[tensor] > run.at).only_enforce_if(pick)
                    # views keep their base; of several in one memory the first is viewed
                    views = [one for one in run.until if alias[one] == alias[tensor]]
                    for view in views:
                        model.add(source.until[tensor] >= run.until[view]).only_enforce_if(pick)
                model.add_bool_or([*picks, run.there.negated()])
    for begin, end, size in variables:
        at = (begin + 1) * runs.width - 1
        intervals.append(model.new_fixed_size_interval_var(at, end * runs.width - at, ""))
        sizes.append(size)
    model.add_cumulative(intervals, sizes, budget)


def _variables(
    graph: StepGraph, order: Sequence[int], written: Mapping[int, Collection[int]]
) -> list[tuple[int, int, int]]:
    base = lives(graph, [Step(node) for node in order], written)
    result = (graph.tensors.kind == Kind.RESULT)[graph.tensors.alias]
    return [
        (begin, end, size)
        for tensor, begin, end, size in zip(
            *(part.tolist() for part in (base.tensor, base.begin, base.end, base.bytes)),
            strict=True,
        )
        if not result[tensor]
    ]
