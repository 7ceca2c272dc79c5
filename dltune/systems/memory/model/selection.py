"""The results to give up and compute again so that a step needs no more than a budget of bytes.

It knows bytes, as op times were measured, where SuperNeurons' strategies know layers and segments.
`exact.exact` takes longer, and reports its distance from the best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dltune.simulate.step_graph import StepGraph
from dltune.systems.memory.model.schedule import NOTHING, Step
from dltune.systems.memory.model.search import Search


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
