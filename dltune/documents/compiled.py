"""A step that PyTorch compiles: the part of a profile that tells what was in memory, and how much
of it the compiler could have had computed again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from dltune.documents.faults import AMOUNT, at_least, between, each


class Rung(msgspec.Struct, frozen=True, array_like=True):
    """What the compiler makes of a graph under a `budget`, the part of what it would keep without.

    `kept`: bytes that the forward pass leaves for the backward pass; `forward`, `backward`: the
    most in each, as the graph tells, where the compiler's loops leave nothing between operations
    that they hold. `again`: operations that the backward pass repeats, and the `work` of these, in
    the unit of `Graph.work`.
    """

    budget: float
    kept: int
    forward: int
    backward: int
    again: int
    work: float


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One that is differentiated, and `runs` so often in a step. `work`: of both its passes,
    multiplications and additions of matrix products and convolutions, and elements of what all else
    gives out. `rungs`: the job's own first, then those of smaller budgets, as far as they are
    others."""

    runs: int
    work: float
    rungs: tuple[Rung, ...]


class Compiled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the end of one step of an optimizer to the end of the next, in bytes of the allocator.

    `live`: at its end. `forward`: the most before the first backward pass, `between`: as that
    began, `backward`: the most from then on. `passes`: how many backward passes there were.
    `failed`: why `graphs` are not told; empty: they are.
    """

    graphs: tuple[Graph, ...]
    live: int
    forward: int
    between: int
    backward: int
    passes: int
    failed: str = ""

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward)

    @property
    def signature(self) -> str:
        """Of the graphs."""
        return hashlib.sha256(msgspec.json.encode(self.graphs)).hexdigest()[:16]


def faults(found: Compiled) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    yield from AMOUNT.of("", found, "live", "forward", "between", "backward", "passes")
    for here, graph in each("graphs", found.graphs):
        yield from at_least(1).of(here, graph, "runs")
        yield from AMOUNT.of(here, graph, "work")
        yield from at_least(1).faults(f"{here}.rungs, counted,", len(graph.rungs))
        for at, rung in each(f"{here}.rungs", graph.rungs):
            yield from between(0.0, 1.0).of(at, rung, "budget")
            yield from AMOUNT.of(at, rung, "kept", "forward", "backward", "again", "work")
        budgets = [rung.budget for rung in graph.rungs]
        if budgets != sorted(set(budgets), reverse=True):
            yield f"{here}.rungs must be of smaller and smaller budgets, got {budgets}"
