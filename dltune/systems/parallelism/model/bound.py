"""A proven lower bound of the step time of any strategy; the gap to it rates a strategy.

For the planner, in this order: `search.least_sum` gives a strategy to start the search from; then
the search; and `bound` of the best that it found.

Three proofs, the best of which is reported. The longest way there and back through the operators,
or all work on all devices alike (`quick`): always there. An integer programme of both together
(`solve`), where ortools is installed; until it ends, the optimum of its relaxation. Branch and
bound (`optimum`), where its tables fit; until it ends, the least of the open part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dltune.native import solver
from dltune.native.solver import SolverFailed
from dltune.systems.parallelism.model.engine import Engine, Proof
from dltune.systems.parallelism.model.problem import Configuration, Nanoseconds, Problem, Strategy
from dltune.systems.parallelism.schemas.operators import Input, Operator

MOST_BYTES = 2**29  # of tables
NODES = 5_000_000  # kept at once, 24 bytes each and 16 while open
COMBINED = 20_000  # configurations of operators that learn together, considered together
_MOVE, _ROW = 24, 24  # bytes of a piece, of a list of them


def optimum(problem: Problem, incumbent: Strategy, seconds: float) -> Proof:
    """Prove the best strategy of a small network on few devices (paper, section 8.4). `incumbent`:
    the best strategy known. Raises ValueError for a problem that does not `fit`.

    Branch and bound, best first (branching.h): operators get their configurations in their order.
    A lower bound of all strategies that begin so is computed, and those that cannot beat the best
    known strategy are left out. That bound holds for every order in which resources could run their
    tasks, and so for first in, first out, too.

    No strategy is left out as the mirror image of another: the configurations over blocks of
    devices are not closed under a change of devices, and tasks that are ready at the same time run
    in the order of their names, which can differ in a mirror image.
    """
    if not fits(problem):
        raise ValueError("too many pairs of configurations for a proof")
    return Engine(problem).prove(incumbent, COMBINED, seconds, NODES)


def fits(problem: Problem) -> bool:
    """True if there is room for the moved data of all pairs of configurations of operators that
    follow each other."""
    bytes = 0
    seen: set[tuple[object, ...]] = set()
    for n, operator in enumerate(problem.graph.operators):
        for read in operator.inputs:
            given = problem.graph.operators[read.operator]
            pair = problem.catalogs[read.operator], problem.catalogs[n]
            like = (
                *(id(pair[0]), id(pair[1]), given.dimensions, given.element, given.gradient),
                *(operator.dimensions, read.regions),
            )
            if like in seen:
                continue
            seen.add(like)
            tasks = [sum(one.tasks for one in catalog) for catalog in pair]
            bytes += 2 * (_MOVE * tasks[0] * tasks[1] + _ROW * len(pair[0]) * len(pair[1]))
    return bytes <= MOST_BYTES


SAFE = 1e-6  # by as much a solver's optimum can be off


@dataclass(frozen=True)
class Ways:
    """One operator's: nanoseconds for each way to divide it."""

    forward: Nanoseconds
    backward: Nanoseconds
    work: Nanoseconds
    added: Nanoseconds


@dataclass(frozen=True)
class Programme:
    """A programme whose optimum no strategy can beat, for networks too large for an exact proof.
    `edges`: producer, consumer, and whether gradients go back, of those on which each part of the
    consumer reads something.

    Operators are divided in some way (degrees and replicas, wherever the parts are), as variables;
    T is the step's time. With f, b the least that a task of operator o takes forwards and backwards
    so, w the least that all its tasks come to, y the least that its gradients are added up in:

        begin(p) >= begin(o) + f(o)             where each part of p reads something of o
        end(o)   >= begin(o) + f(o) + b(o)
        end(o)   >= end(p) + b(o)               where besides gradients go back from p to o
        T        >= end(o) + y(o)
        devices * T >= the sum of all w

    In any simulated strategy these hold with begin(o) the earliest that one of its tasks begins
    forwards, and end(o) the latest that one ends backwards: every task of p waits for one of o that
    it reads, and that task for its gradient; transfers only add to it. Each device runs one task at
    a time. Let the variables be fractions, and the optimum can only be lower.
    """

    devices: int
    ways: tuple[Ways, ...]
    edges: tuple[tuple[int, int, bool], ...]


def linear_programme(engine: Engine) -> Programme:
    problem = engine.problem
    graph = problem.graph
    members = [operator.weights for operator in graph.operators]
    ways: list[Ways] = []
    known: dict[tuple[object, ...], Ways] = {}
    for n, operator in enumerate(graph.operators):
        like = (
            *(id(problem.catalogs[n]), id(problem.forward[n]), id(problem.backward[n])),
            *(operator.weights, operator.parameter),
        )
        if like not in known:
            alone = members.count(operator.weights) == 1
            added = engine.added(n) if alone else _added_together(problem, n, engine.added(n))
            known[like] = _ways(problem, n, added)
        ways.append(known[like])
    edges = []
    reads: dict[tuple[object, ...], bool] = {}
    for n, operator in enumerate(graph.operators):
        for read in operator.inputs:
            given = graph.operators[read.operator]
            alike = (id(problem.catalogs[n]), operator.dimensions, given.dimensions, read.regions)
            if alike not in reads:
                reads[alike] = _reads_something(operator, given, read, problem.catalogs[n])
            if reads[alike]:
                edges.append((read.operator, n, given.gradient))
    return Programme(problem.devices, tuple(ways), tuple(edges))


def quick(given: Programme) -> int:
    """Nanoseconds: the longest way there and back with the shortest times, edge by edge, or all
    work on all devices alike; without a solver."""
    after: list[list[int]] = [[] for _ in given.ways]
    for n, (producer, _, _) in enumerate(given.edges):
        after[producer].append(n)
    back = [0] * len(given.ways)
    onward = [0] * len(given.ways)
    for o in range(len(given.ways) - 1, -1, -1):
        ways = given.ways[o]
        within = max((back[given.edges[e][1]] for e in after[o] if given.edges[e][2]), default=0)
        beyond = max((onward[given.edges[e][1]] for e in after[o]), default=0)
        there = ways.forward + ways.backward + within
        back[o] = int(there.min())
        onward[o] = int(np.maximum(there + ways.added, ways.forward + beyond).min())
    work = sum(int(ways.work.min()) for ways in given.ways)
    return max(*onward, -(-work // given.devices))


def solve(given: Programme, limit: float) -> int:
    """Return a lower limit of the optimum, nanoseconds, after `limit` seconds at most; 0 where that
    was too short. Imports ortools: for `solver.run` alone."""
    from ortools.linear_solver import pywraplp

    unit = max(1.0, float(quick(given)))  # so that numbers are near 1
    solver = pywraplp.Solver.CreateSolver("SCIP")
    solver.SetTimeLimit(int(limit * 1000))
    endless = solver.infinity()
    time = solver.NumVar(0, endless, "T")
    begin = [solver.NumVar(0, endless, "") for _ in given.ways]
    end = [solver.NumVar(0, endless, "") for _ in given.ways]
    variables: list[list[Any]] = []
    work = solver.Constraint(0, endless)
    work.SetCoefficient(time, given.devices)

    def at_least(later: Any, *earlier: Any) -> Any:
        row = solver.Constraint(0, endless)
        row.SetCoefficient(later, 1)
        for one in earlier:
            row.SetCoefficient(one, -1)
        return row

    def add(row: Any, o: int, amounts: Nanoseconds) -> None:
        for variable, amount in zip(variables[o], amounts, strict=True):
            row.SetCoefficient(variable, row.GetCoefficient(variable) - amount / unit)

    for o, ways in enumerate(given.ways):
        variables.append([solver.IntVar(0, 1, "") for _ in ways.work])
        one = solver.Constraint(1, 1)
        for variable in variables[o]:
            one.SetCoefficient(variable, 1)
        add(work, o, ways.work)
        add(at_least(end[o], begin[o]), o, ways.forward + ways.backward)
        add(at_least(time, end[o]), o, ways.added)
    for o, p, gradient in given.edges:
        add(at_least(begin[p], begin[o]), o, given.ways[o].forward)
        if gradient:
            add(at_least(end[o], end[p]), o, given.ways[o].backward)
    solver.Minimize(time)
    solver.Solve()
    found = float(solver.Objective().BestBound())
    return math.ceil(max(0.0, found) * unit * (1 - SAFE)) if math.isfinite(found) else 0


def _ways(problem: Problem, n: int, added: Nanoseconds) -> Ways:
    """Those of its configurations that divide alike, which begin on other devices, are one."""
    places: dict[tuple[object, ...], list[int]] = {}
    kinds = [kind.name for kind in problem.topology.kinds]
    of = np.array([kinds.index(device.kind) for device in problem.topology.devices])
    for at, one in enumerate(problem.catalogs[n]):
        places.setdefault((one.degrees, one.replicas), []).append(at)
    there, back = problem.forward[n], problem.backward[n]
    rows = []
    for some in places.values():
        if len(kinds) == 1:  # wherever they begin
            at = some[0]
            tasks = problem.catalogs[n][at].tasks
            work = tasks * (there[at, 0] + back[at, 0])
            rows.append((there[at, 0], back[at, 0], work, added[some].min()))
            continue
        ons = [of[problem.catalogs[n][at].devices(problem.devices)] for at in some]
        forward = min(there[at, on].min() for at, on in zip(some, ons, strict=True))
        backward = min(back[at, on].min() for at, on in zip(some, ons, strict=True))
        work = min((there[at, on] + back[at, on]).sum() for at, on in zip(some, ons, strict=True))
        rows.append((forward, backward, work, added[some].min()))
    return Ways(*np.array(rows, np.int64).T)


def _added_together(problem: Problem, n: int, alone: Nanoseconds) -> Nanoseconds:
    """Return y(o) of `Programme`, at least, with other operators that learn the same. `alone`: y(o)
    if there were none.

    Where o learns alone, y(o) is the longest way through rings and update that any of its devices
    waits for. Where others learn with it (the steps of a recurrent layer), each set of devices has
    those that o alone would give and maybe more. Are these all devices, it is the same ring. Else
    each device of a set passes on at least 2 (k - 1) / k of what it holds, k being as many devices
    as hold each of o's shards: one of its channels takes its share of that. Of sets on several
    hosts only k = 2 is sure.
    """
    operator, ways = problem.graph.operators[n], problem.routes
    if operator.weights is None or problem.devices == 1:
        return alone
    bytes = problem.graph.weights[operator.weights].bytes
    several = len({device.host for device in problem.topology.devices}) > 1
    apart = ~np.eye(problem.devices, dtype=bool)
    # of the device that can send the fastest
    fastest = min(
        float(ways.per_byte[d][apart[d]].min()) / len(set(ways.channel[d][apart[d]].tolist()))
        for d in range(problem.devices)
    )
    rounded = 2 * problem.devices * _shards(problem, operator.weights)  # ns, every hop down
    found = np.zeros_like(alone)
    for at, one in enumerate(problem.catalogs[n]):
        divided = 1 if operator.parameter is None else one.degrees[operator.parameter]
        if one.tasks * one.stride > problem.devices:  # some can be on one device
            continue
        holders = one.parts // divided
        if holders == problem.devices:
            found[at] = alone[at]
        elif holders > 1:
            passed = 1.0 if several else 2 * (holders - 1) / holders
            found[at] = max(0, int(passed * bytes / divided * fastest * 1e9) - rounded)
    return found


def _shards(problem: Problem, weights: int) -> int:
    """Return the greatest possible number of shards."""
    degrees = {1}
    for n, operator in enumerate(problem.graph.operators):
        if operator.weights == weights and operator.parameter is not None:
            degrees |= {one.degrees[operator.parameter] for one in problem.catalogs[n]}
    return math.lcm(*degrees)


def _reads_something(
    operator: Operator, given: Operator, read: Input, catalog: Sequence[Configuration]
) -> bool:
    """True if every part reads something, however the operator is divided."""
    for region, dimension in zip(read.regions, given.dimensions, strict=True):
        if region.of is None:
            if max(region.start, 0) >= min(region.start + region.extent, dimension.size):
                return False
            continue
        size = operator.dimensions[region.of].size
        for degree in {one.degrees[region.of] for one in catalog}:
            places = np.arange(degree + 1) * size // degree
            low, last = places[:-1], places[1:] - 1
            begin = np.maximum(low * region.stride + region.start, 0)
            end = last * region.stride + region.start + region.extent
            if (last < low).any() or (begin >= np.minimum(end, dimension.size)).any():
                return False
    return True


ProofMethod = Literal["longest path or total work", "integer programme", "branch and bound"]
_PART = 0.25  # of the time, for the programme
_MOST_WAYS = 200_000  # variables, for which there is memory


@dataclass(frozen=True)
class Bound:
    """`failure`: why the solver ended without a bound, a sentence."""

    value_ns: int
    proven_by: ProofMethod
    failure: str | None = None


def bound(problem: Problem, strategy_time: int, seconds: float) -> Bound:
    """`strategy_time`: nanoseconds of the best strategy known. It takes about `seconds`, or what
    the programme takes to be made where that is more, and what its tables take."""
    begin = time.monotonic()
    engine = Engine(problem)
    programme = linear_programme(engine)
    found: list[tuple[int, ProofMethod]] = [(quick(programme), "longest path or total work")]
    failure = None
    ways = sum(len(one.work) for one in programme.ways)
    left = seconds - (time.monotonic() - begin)
    if solver.installed() and left > 0 and found[0][0] < strategy_time and ways <= _MOST_WAYS:
        limit = left * _PART
        try:
            value = solver.run(solve, programme, limit, limit=limit)
            found.append((value, "integer programme"))
        except SolverFailed as failed:
            failure = str(failed)
    left = seconds - (time.monotonic() - begin)
    if left > 0 and max(found)[0] < strategy_time and fits(problem):
        any_strategy = (0,) * len(problem.catalogs)
        proof = engine.prove(any_strategy, COMBINED, left, NODES, known=strategy_time)
        found.append((proof.bound, "branch and bound"))
    value_ns, proven_by = max(found, key=lambda one: one[0])
    return Bound(value_ns, proven_by, failure)
