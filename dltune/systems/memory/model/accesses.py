"""The memory that each step of a schedule touches: a tier of memory must hold it for the step to
run."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dltune.simulate.step_graph import Amounts, Lives, StepGraph
from dltune.systems.memory.model.schedule import (
    NOTHING,
    Step,
    Touched,
    levels,
    touches,
)


@dataclass(frozen=True, eq=False)
class Accesses:
    """`lives`: of memory each time that it is taken, a *block*; blocks are known by their places in
    it. `tensors`: by step, what it reads or gives out, and the block."""

    lives: Lives
    tensors: Touched

    @functools.cached_property
    def touched(self) -> Sequence[Sequence[int]]:
        """By step, the blocks that it reads or gives out, each once."""
        return [list(dict.fromkeys(block for _, block in row)) for row in self.tensors]

    @functools.cached_property
    def at(self) -> Sequence[Sequence[int]]:
        """By block, the steps that touch it, rising."""
        found: list[list[int]] = [[] for _ in self.lives.tensor]
        for now, row in enumerate(self.touched):
            for block in row:
                found[block].append(now)
        return found

    def alone(self, graph: StepGraph, steps: Sequence[Step]) -> dict[int, dict[int, int]]:
        """Return, by block, and step that touches it, the only tensor of the block's content then
        that is read later: it must come back if the block leaves after that step."""
        producer = graph.tensors.producer.tolist()
        later: list[set[int]] = [set() for _ in self.at]
        found: dict[int, dict[int, int]] = {}
        for now in range(len(self.tensors) - 1, -1, -1):
            for block in self.touched[now]:
                if len(later[block]) == 1:
                    found.setdefault(block, {})[now] = next(iter(later[block]))
            for tensor, block in reversed(self.tensors[now]):
                if producer[tensor] == steps[now].node:
                    later[block].discard(tensor)
                else:
                    later[block].add(tensor)
        return found

    @property
    def bytes(self) -> list[int]:
        """By block."""
        found: list[int] = self.lives.bytes.tolist()
        return found

    @property
    def levels(self) -> Amounts:
        """By step the bytes of all blocks that are alive."""
        return levels(self.lives, len(self.touched))[0]

    @property
    def largest(self) -> int:
        """Return the most bytes that one step touches: no tier can do with less."""
        size = self.bytes
        return max((sum(size[block] for block in row) for row in self.touched), default=0)


def accesses(
    graph: StepGraph,
    steps: Sequence[Step],
    written: Mapping[int, Collection[int]] = NOTHING,
    forwarded: Mapping[int, Collection[int]] = NOTHING,
) -> Accesses:
    """Return the accesses of nodes in the order in which they run. Tensors that `steps` bring back
    are ignored, for who holds a block when is decided after this. Arguments and ValueError as of
    `touches`."""
    plain = [Step(step.node) for step in steps]
    return Accesses(*touches(graph, plain, written, forwarded))
