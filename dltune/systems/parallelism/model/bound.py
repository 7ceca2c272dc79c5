"""A proven lower bound of the step time of any strategy; the gap to it rates a strategy.

For the planner, in this order: `dynamic.strategy` gives a strategy to start the search from; then
the search; and `bound` of the best that it found.

Three proofs, the best of which is reported. The longest way there and back through the operators,
or all work on all devices alike (`linear.quick`): always there. An integer programme of both
together (`linear.solve`), where ortools is installed; until it ends, the optimum of its relaxation.
Branch and bound (`exact`), where its tables fit; until it ends, the least of the open part.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from dltune.native import solver
from dltune.native.solver import SolverFailed
from dltune.systems.parallelism.model import exact, linear
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import Problem

Proof = Literal["longest path or total work", "integer programme", "branch and bound"]
_PART = 0.25  # of the time, for the programme
_MOST_WAYS = 200_000  # variables, for which there is memory


@dataclass(frozen=True)
class Bound:
    """`failure`: why the solver ended without a bound, a sentence."""

    value_ns: int
    proven_by: Proof
    failure: str | None = None


def bound(problem: Problem, strategy_time: int, seconds: float) -> Bound:
    """`strategy_time`: nanoseconds of the best strategy known. It takes about `seconds`, and what
    the programme and its tables take to be made."""
    begin = time.monotonic()
    engine = Engine(problem)
    programme = linear.programme(engine)
    found: list[tuple[int, Proof]] = [(linear.quick(programme), "longest path or total work")]
    failure = None
    ways = sum(len(one.work) for one in programme.ways)
    if solver.installed() and seconds > 0 and found[0][0] < strategy_time and ways <= _MOST_WAYS:
        limit = seconds * _PART
        try:
            value = solver.run(linear.solve, programme, limit, limit=limit)
            found.append((value, "integer programme"))
        except SolverFailed as failed:
            failure = str(failed)
    left = seconds - (time.monotonic() - begin)
    if left > 0 and max(found)[0] < strategy_time and exact.fits(problem):
        any_strategy = (0,) * len(problem.catalogs)
        proof = engine.prove(any_strategy, exact.COMBINED, left, exact.NODES, known=strategy_time)
        found.append((proof.bound, "branch and bound"))
    value_ns, proven_by = max(found, key=lambda one: one[0])
    return Bound(value_ns, proven_by, failure)
