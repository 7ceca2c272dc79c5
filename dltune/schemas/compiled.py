"""A PyTorch step that the script compiles: the part of a profile that shows what smaller memory
budgets cost.

Sizes are in bytes of the allocator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from dltune.base.faults import (
    AMOUNT,
    at_least,
    between,
    each,
)


class Rung(msgspec.Struct, frozen=True, array_like=True):
    """The compiled graph under one memory budget of the compiler.

    `budget`: `activation_memory_budget`, from 0 to 1.
    `kept`: bytes that the forward pass keeps for the backward pass.
    `forward`, `backward`: highest number of bytes in each pass, computed from the graph.
    `again`: number of operations that the backward pass repeats.
    `work`: work of the repeated operations, in the unit of the graph's `work`.
    """

    budget: float
    kept: int
    forward: int
    backward: int
    again: int
    work: float


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A compiled graph with a backward pass.

    `runs`: executions per step.
    `work`: work of both passes: multiplications and additions of matrix products and convolutions,
      plus output elements of all other operations.
    `rungs`: memory budgets that give different graphs, the job's own budget first.
    """

    runs: int
    work: float
    rungs: tuple[Rung, ...]


class Compiled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step between the end of one optimizer step and the end of the next.

    `graphs`: compiled graphs with a backward pass.
    `live`: bytes at the end of the step.
    `forward`: highest number of bytes before the first backward pass.
    `between`: bytes at the start of the first backward pass.
    `backward`: highest number of bytes after that.
    `passes`: number of backward passes.
    `failed`: reason why `graphs` is incomplete; empty if it is complete.
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
        yield from at_least(1).faults(f"the length of {here}.rungs", len(graph.rungs))
        for at, rung in each(f"{here}.rungs", graph.rungs):
            yield from between(0.0, 1.0).of(at, rung, "budget")
            yield from AMOUNT.of(at, rung, "kept", "forward", "backward", "again", "work")
        budgets = [rung.budget for rung in graph.rungs]
        if budgets != sorted(set(budgets), reverse=True):
            yield f"{here}.rungs must be in order of decreasing budget, got {budgets}"
