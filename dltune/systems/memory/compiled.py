"""The part of a step that PyTorch's compiler keeps for the backward pass, so that it fits a budget.

`activation_memory_budget`, a number, is the part that the compiler keeps of all that it would keep;
it computes the cheapest again. The profile has the outcome of each number, for the job's own
graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dltune.analysis.step_parts import unrecorded
from dltune.base.errors import UsageError
from dltune.schemas.profile import Profile
from dltune.schemas.pytorch_step import Compiled, Graph, Rung
from dltune.systems.memory.section import Memory
from dltune.systems.memory.show import mib


@dataclass(frozen=True)
class Kept:
    """Under one `budget` of the compiler. `peak`: bytes in all; `added`: a share of the work."""

    budget: float
    peak: int
    added: float


def decide(profile: Profile, found: Compiled, budget: int | None, slowdown: float | None) -> Memory:
    """Plan for `budget`: bytes of PyTorch's allocator in all; `slowdown`: as few as with so much
    more work, a share; neither: as few as possible. Raises UsageError when the budget cannot be
    met, or the profile lacks the necessary data."""
    _require_known(found)
    there = list(_kept(found))
    if budget is not None:
        fitting = [one for one in there if one.peak <= budget]
        least = min(one.peak for one in there)
        if not fitting:
            raise UsageError(
                f"budget too small: a step needs at least {mib(least)}, which exceeds "
                f"{mib(budget)}",
                remedy=f"pass --budget {-(-least >> 20)}MiB or more, or --smallest",
            )
        chosen = min(fitting, key=lambda one: (one.added, one.peak))
    else:
        allowed = [one for one in there if slowdown is None or one.added <= slowdown]
        chosen = min(allowed or there[:1], key=lambda one: (one.peak, one.added))
    seconds = unrecorded(profile)
    before, peak = (max(0, one.peak - found.live) for one in (there[0], chosen))
    return Memory(
        signature=found.signature,
        nodes=(),
        order=(),
        budget=budget,
        live=found.live,
        before=before,
        peak=peak,
        seconds=seconds,
        added=chosen.added * seconds,
        course_before=(before,),
        course=(peak,),
        compiled=chosen.budget,
    )


def _require_known(found: Compiled) -> None:
    if found.failed or not found.graphs:
        raise UsageError(
            "the profile does not contain the memory that PyTorch's compiler keeps for the "
            "backward pass: " + (found.failed or "no compiled graph has a backward pass"),
            remedy="profile the job without torch.compile and plan again",
        )
    if found.passes != 1:
        raise UsageError(
            f"a step has {found.passes} backward passes; with torch.compile, memory can be planned "
            "for one backward pass only",
            remedy="profile the job without torch.compile and plan again",
        )


def _kept(found: Compiled) -> Iterator[Kept]:
    """Yield the job's own first. Values that the graphs do not describe, such as the loss, are as
    they were measured; they come while everything kept is there. Compilers can find an order that
    takes less than the graph's own."""
    graphs = [graph for graph in found.graphs for _ in range(graph.runs)]
    own = [graph.rungs[0] for graph in graphs]
    beside = found.between - _sum(own)
    work = sum(graph.work for graph in graphs)
    budgets = {rung.budget for graph in graphs for rung in graph.rungs}
    for budget in sorted(budgets, reverse=True):
        rungs = [_rung(graph, budget) for graph in graphs]
        less = _sum(own) - _sum(rungs)
        within = max(_most(rungs, _forward), _most(rungs, _backward))
        peak = max(found.peak - less, beside + within) if rungs != own else found.peak
        more = sum(rung.work for rung in rungs) - sum(rung.work for rung in own)
        yield Kept(budget, peak, max(0.0, more) / max(work, 1.0))


def _rung(graph: Graph, budget: float) -> Rung:
    """Return the rung of a budget: between two rungs it comes to the same as the upper; the job's
    own budget, which can be smaller for a part of it, stays."""
    above = (one for one in graph.rungs if one.budget >= budget)
    return min(above, key=lambda one: one.budget, default=graph.rungs[0])


def _sum(rungs: Sequence[Rung]) -> int:
    return sum(rung.kept for rung in rungs)


def _most(rungs: Sequence[Rung], within: Callable[[Rung], int]) -> int:
    """Bytes in either pass of graphs that run one after the other, and backward in turn: those
    before have left what they keep."""
    return max(_sum(rungs[:at]) + within(rung) for at, rung in enumerate(rungs))


def _forward(rung: Rung) -> int:
    return rung.forward


def _backward(rung: Rung) -> int:
    return rung.backward
