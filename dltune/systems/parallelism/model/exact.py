"""The best strategy of a small network on few devices, proven (paper, section 8.4).

Branch and bound, best first (branching.h): operators get their configurations in their order;
beginning.h gives the lower bound of all strategies that begin so, and those that cannot beat the
best known strategy are left out. That bound holds for every order in which resources could run
their tasks, and so for first in, first out, too. No strategy is left out as the mirror image of
another: the configurations over blocks of devices are not closed under a change of devices, and
tasks that are ready at the same time run in the order of their names, which can differ in a mirror
image.
"""

from __future__ import annotations

from dltune.systems.parallelism.model.engine import Engine, Proof
from dltune.systems.parallelism.model.problem import Problem, Strategy

MOST_BYTES = 2**29  # of tables
NODES = 5_000_000  # kept at once, 24 bytes each and 16 while open
COMBINED = 20_000  # configurations of operators that learn together, considered together
_MOVE, _ROW = 24, 24  # bytes of a piece, of a list of them


def optimum(problem: Problem, incumbent: Strategy, seconds: float) -> Proof:
    """`incumbent`: the best strategy known. Raises ValueError for a problem that does not `fit`."""
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
