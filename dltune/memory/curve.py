"""Added time over budgets of bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dltune.graph.step_graph import StepGraph
from dltune.memory.schedule import NOTHING
from dltune.memory.selection import BudgetTooSmall, Selection, select


def curve(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    budgets: Sequence[int],
    written: Mapping[int, Collection[int]] = NOTHING,
) -> list[Selection | None]:
    """By budget a selection, or None where it cannot be met. None takes more time than one for a
    smaller budget: what meets that meets a larger one, too. Other arguments as of `select`."""
    found: dict[int, Selection | None] = {}
    best: Selection | None = None
    for budget in sorted(set(budgets)):
        one: Selection | None
        try:
            one = select(graph, order, seconds, again, budget, written)
        except BudgetTooSmall:
            one = best
        if one is not None and (best is None or one.seconds < best.seconds):
            best = one
        found[budget] = best
    return [found[budget] for budget in budgets]
