"""Proven limits of recomputation: a lower bound for any budget, and the optimum of small steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from dltune.native import solver
from dltune.simulate.step_graph import Integers, Kind, StepGraph
from dltune.systems.memory.model.schedule import NOTHING, Step, levels, lives

Row = tuple[list[tuple[int, float]], float]

# the smallest tensors, which together take at most this part of the budget, are held for nothing
_SMALL = 0.005


@dataclass(frozen=True)
class RelaxedSolution:
    """`bound`: seconds that computing again takes at least; infinite where the budget cannot be
    met. For the best solution, by moment: `kept`, the tensors held there for later, and `again`,
    the nodes that run again between it and the next. None where none was found."""

    bound: float
    kept: Sequence[Collection[int]] | None
    again: Sequence[Collection[int]] | None


@dataclass
class _Programme:
    """Least cost with all rows (variables with factors) at least what they say. Variables, all 0
    or 1, by moment and tensor or node."""

    cost: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    kept: list[dict[int, int]] = field(default_factory=list)
    again: list[dict[int, int]] = field(default_factory=list)
    later: list[dict[int, int]] = field(default_factory=list)
    memory: list[dict[int, int]] = field(default_factory=list)

    def variable(self, cost: float = 0.0) -> int:
        self.cost.append(cost)
        return len(self.cost) - 1

    def imply(self, whole: int | None, parts: Iterable[int]) -> None:
        """One of the parts where there is the whole, or always."""
        row = [(part, 1.0) for part in parts]
        self.rows.append((row, 1.0) if whole is None else ([*row, (whole, -1.0)], 0.0))


class Relaxation:
    """A lower bound on the results that must be computed again for a budget, whatever the order.
    Arguments as of `selection.select`.

    A moment is the first run of a node. There no more than the budget can be held. A result that is
    read later and is not held must be computed again later, and so must its inputs that are not
    held. Between two moments nothing is restricted except the inputs of runs. So every order in
    which the nodes first run as given is a solution of this mixed-integer programme, and none can
    take less than its least.

    With all moments it is Checkmate's (Jain et al., MLSys 2020), except for the other memory that a
    stage holds, and with no limit on how often and in which order a stage computes. Few moments
    suffice where few are tight; they are added where a solution, made an order again, needs too
    much.
    """

    def __init__(
        self,
        graph: StepGraph,
        order: Sequence[int],
        seconds: Sequence[float],
        again: Sequence[int],
        budget: int,
        written: Mapping[int, Collection[int]] = NOTHING,
    ) -> None:
        tensors = graph.tensors
        self.order, self.seconds, self.again, self.budget = order, seconds, again, budget
        self.alias, self.bytes = tensors.alias.tolist(), tensors.bytes.tolist()
        self.producer = tensors.producer.tolist()
        self.position = [0] * len(graph)
        for at, node in enumerate(order):
            self.position[node] = at
        held = (tensors.kind == Kind.RESULT)[tensors.alias].tolist()
        self.reads = [sorted({one for one in row if held[one]}) for row in graph.reads.lists]
        self.gives: list[list[int]] = [[] for _ in range(len(graph))]
        self.results = [one for one, there in enumerate(held) if there]
        for one in self.results:
            self.gives[self.producer[one]].append(one)
        self.last = [-1] * len(tensors)  # where it is read first runs
        for node, row in enumerate(self.reads):
            for one in row:
                self.last[one] = max(self.last[one], self.position[node])
        base = lives(graph, [Step(node) for node in order], written)
        self.peak = int(np.argmax(levels(base, len(order))[0])) if order else 0
        # what variables take, by moment
        self.fixed = np.zeros(len(order) + 1, np.int64)
        other = [number for number, one in enumerate(base.tensor.tolist()) if not held[one]]
        np.add.at(self.fixed, base.begin[other], base.bytes[other])
        np.add.at(self.fixed, base.end[other], -base.bytes[other])
        self.fixed = np.cumsum(self.fixed)
        self.free = self._small()

    def _small(self) -> set[int]:
        own = sorted((self.bytes[one], one) for one in self.results if self.alias[one] == one)
        sums = itertools.accumulate(bytes for bytes, _ in own)
        return {
            one for (_, one), total in zip(own, sums, strict=True) if total <= _SMALL * self.budget
        }

    def solve(
        self, moments: Sequence[int], limit: float, nodes: Integers | None = None
    ) -> RelaxedSolution:
        """In about `limit` seconds. `moments` rise. `nodes`: an order that meets the budget, to
        begin with. Raises what `solver.run` does."""
        programme = self._programme(moments)
        hint = None if nodes is None else self._solution(programme, moments, nodes)
        limit = max(limit, 0.1)
        bound, on = solver.run(_solve, programme.cost, programme.rows, hint, limit, limit=limit)
        if on is None:
            return RelaxedSolution(bound, None, None)
        chosen = [
            [{one for one, variable in each.items() if on[variable]} for each in every]
            for every in (programme.kept, programme.again)
        ]
        return RelaxedSolution(bound, *chosen)

    def _programme(self, moments: Sequence[int]) -> _Programme:
        programme = _Programme()
        count = len(moments)
        for every in (programme.kept, programme.again, programme.later, programme.memory):
            every += [{} for _ in moments]
        ends = [*moments[1:], len(self.order) - 1]
        for number in reversed(range(count)):
            last = number == count - 1
            self._interval(programme, number, moments[number], ends[number], last)
            self._later(programme, number, moments[number], last)
            self._level(programme, number, moments[number])
        return programme

    def _interval(
        self, programme: _Programme, number: int, begin: int, end: int, last: bool
    ) -> None:
        """Add rows: a result that is read between two moments has been kept from the first or runs
        again."""
        kept, again = programme.kept[number], programme.again[number]
        open: list[int] = []

        def cover(tensor: int, whole: int | None) -> None:
            node = self.producer[tensor]
            if self.alias[tensor] in self.free or self.position[node] >= begin:
                return
            if tensor not in kept:
                kept[tensor] = programme.variable()
            if self.again[node] > begin + 1 and node not in again:
                again[node] = programme.variable(self.seconds[node])
                open.append(node)
            programme.imply(whole, [kept[tensor], *([again[node]] if node in again else [])])

        for one in sorted(
            {t for at in range(begin + 1, end + 1) for t in self.reads[self.order[at]]}
        ):
            cover(one, None)
        if not last:
            for tensor, variable in programme.kept[number + 1].items():
                cover(tensor, variable)
        while open:
            node = open.pop()
            for tensor in self.reads[node]:
                cover(tensor, again[node])

    def _later(self, programme: _Programme, number: int, begin: int, last: bool) -> None:
        """The same for all that comes after a moment, whenever. It follows for whole numbers; for
        parts of them it makes the bound at least that of the moment alone."""
        kept, again, later = (
            every[number] for every in (programme.kept, programme.again, programme.later)
        )
        next: Mapping[int, int] = {} if last else programme.later[number + 1]
        open: list[int] = []

        def cover(tensor: int, whole: int | None) -> None:
            node = self.producer[tensor]
            if tensor not in kept:
                return
            if (node in again or node in next) and node not in later:
                later[node] = programme.variable()
                open.append(node)
            programme.imply(whole, [kept[tensor], *([later[node]] if node in later else [])])

        for tensor in list(kept):
            if self.last[tensor] > begin:
                cover(tensor, None)
        while open:
            node = open.pop()
            for tensor in self.reads[node]:
                cover(tensor, later[node])
        for node, variable in later.items():
            parts = [every[node] for every in (again, next) if node in every]
            programme.imply(variable, parts)
            for part in parts:
                programme.imply(part, [variable])

    def _level(self, programme: _Programme, number: int, at: int) -> None:
        """Add the memory held while the moment's node runs."""
        node = self.order[at]
        there = {self.alias[one] for one in (*self.reads[node], *self.gives[node])}
        there.update(
            self.alias[one]
            for one in self.results
            if self.alias[one] in self.free
            and self.position[self.producer[one]] < at < self.last[one]
            and self.again[self.producer[one]] <= at + 1
        )
        load = sum(self.bytes[one] for one in there) + int(self.fixed[at])
        memory = programme.memory[number]
        for tensor, variable in programme.kept[number].items():
            owner = self.alias[tensor]
            if owner not in there:
                if owner not in memory:
                    memory[owner] = programme.variable()
                programme.imply(variable, [memory[owner]])
        scale = max(self.budget, 1)
        row = [(variable, -self.bytes[owner] / scale) for owner, variable in memory.items()]
        programme.rows.append((row, (load - self.budget) / scale))

    def _solution(
        self, programme: _Programme, moments: Sequence[int], nodes: Integers
    ) -> list[float]:
        """The variables as an order has them."""
        value = [0.0] * len(programme.cost)
        ran: set[int] = set()
        given: dict[int, int] = {}
        read: dict[int, int] = {}
        held: list[tuple[int, int, int]] = []  # from where to where, and the tensor
        where: list[int] = []  # of the moments
        number = -1
        for at, node in enumerate(nodes.tolist()):
            if node in ran and number >= 0 and node in programme.again[number]:
                value[programme.again[number][node]] = 1.0
            if node not in ran and self.position[node] in moments:
                number += 1
                where.append(at)
            ran.add(node)
            for tensor in self.reads[node]:
                read[tensor] = at
            for tensor in self.gives[node]:
                if tensor in given:
                    held.append((given[tensor], read.get(tensor, -1), tensor))
                given[tensor] = at
        held += [(at, read.get(tensor, -1), tensor) for tensor, at in given.items()]
        for begin, end, tensor in held:
            for number, at in enumerate(where):
                if begin < at < end and tensor in programme.kept[number]:
                    value[programme.kept[number][tensor]] = 1.0
                    owner = self.alias[tensor]
                    if owner in programme.memory[number]:
                        value[programme.memory[number][owner]] = 1.0
        later: set[int] = set()
        for number in reversed(range(len(moments))):
            later.update(n for n, v in programme.again[number].items() if value[v])
            for node, variable in programme.later[number].items():
                value[variable] = float(node in later)
        return value

    def run(self, moments: Sequence[int], answer: RelaxedSolution) -> tuple[list[int], list[bool]]:
        """Return an order that keeps at the moments the tensors that the answer keeps, and computes
        missing results again just before they are read; and whether a node runs again."""
        assert answer.kept is not None
        nodes: list[int] = []
        again: list[bool] = []
        there: set[int] = set()
        kept = dict(zip(moments, answer.kept, strict=True))
        for at, node in enumerate(self.order):
            stack = list(reversed(self.reads[node]))
            while stack:
                tensor = stack[-1]
                source = self.producer[tensor]
                missing = [one for one in self.reads[source] if one not in there]
                if tensor in there:
                    stack.pop()
                elif missing:
                    stack += reversed(missing)
                else:
                    nodes.append(source)
                    again.append(True)
                    there.update(self.gives[source])
            if at in kept:
                there = {t for t in there if self.alias[t] in self.free or t in kept[at]}
            nodes.append(node)
            again.append(False)
            there.update(self.gives[node])
        return nodes, again


def _solve(
    cost: Sequence[float], rows: Sequence[Row], hint: Sequence[float] | None, limit: float
) -> tuple[float, list[bool] | None]:
    """Return a lower bound of the least, and the variables that are 1 in the best solution, if one
    was found. Imports ortools: for `solver.run` alone."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    x = [model.add_binary_variable() for _ in cost]
    for row, least in rows:
        model.add_linear_constraint(
            mathopt.LinearSum(factor * x[one] for one, factor in row) >= least
        )
    model.minimize(mathopt.LinearSum(each * x[one] for one, each in enumerate(cost) if each))
    hints = []
    if hint is not None:
        hints = [mathopt.SolutionHint(variable_values=dict(zip(x, hint, strict=True)))]
    found = mathopt.solve(
        model,
        mathopt.SolverType.HIGHS,
        params=mathopt.SolveParameters(time_limit=timedelta(seconds=limit)),
        model_params=mathopt.ModelSolveParameters(solution_hints=hints),
    )
    if found.termination.reason == mathopt.TerminationReason.INFEASIBLE:
        return math.inf, None
    bound = max(0.0, found.termination.objective_bounds.dual_bound)
    if not found.has_primal_feasible_solution():
        return bound, None
    return bound, [value > 0.5 for value in found.variable_values(x)]


def least(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budget: int,
    written: Mapping[int, Collection[int]] = NOTHING,
    limit: float = 5.0,
) -> float:
    """Seconds of computing again that no order of these takes less than, from the moment at which
    the step as given needs the most; infinite where the budget cannot be met. In about `limit`
    seconds. Raises what `solver.run` does."""
    relaxation = Relaxation(graph, order, seconds, again, budget, written)
    return relaxation.solve([relaxation.peak], limit).bound


COPIES = 3  # number of times that a node can run again
LARGEST = 120  # nodes that can run again, for which it is worth trying
_THREADS = 2
_UNITS = 10**7  # of a step's time, in which the solver counts


@dataclass(frozen=True)
class IntervalSolution:
    """`bound`: seconds. `nodes` as they run, and by position whether it is `again`; None where no
    order was found."""

    bound: float
    nodes: Sequence[int] | None
    again: Sequence[bool]


def solve_intervals(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budget: int,
    written: Mapping[int, Collection[int]],
    bound: float,
    limit: float,
    begin: Integers | None,
) -> IntervalSolution:
    """Solve a small step to the optimum: intervals say when each result is held.

    Arguments as of `selection.select`. `bound`: seconds below which nobody can go; `begin`: an
    order that meets the budget, if one is known. Imports ortools: for `solver.run` alone.

    As in MOCCASIN (Bartan et al., ICML 2023) a variable of the constraint solver says when a node
    runs for the k-th time, and another until when what it gives is retained; the intervals share
    the budget as a cumulative resource. There a node has one place in each stage. Here what runs
    again may do so at any place between two first runs, in any order and several times.
    """
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
        return IntervalSolution(float("inf") if impossible else bound, None, ())
    ran = sorted(
        (solver.value(run.at), number == 0, node)
        for node, row in runs.of.items()
        for number, run in enumerate(row)
        if number == 0 or solver.value(run.there)
    )
    best = solver.best_objective_bound * unit
    if status == cp_model.OPTIMAL:
        best = sum(seconds[node] for _, first, node in ran if not first)
    return IntervalSolution(
        max(bound, best), [node for *_, node in ran], [not first for _, first, _ in ran]
    )


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
