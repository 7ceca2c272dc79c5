"""Which memory each step of a schedule touches: what a tier of memory must hold for it to run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dltune.graph.csr import Amounts
from dltune.graph.liveness import Lives
from dltune.graph.step_graph import StepGraph
from dltune.memory.schedule import NOTHING, Step, levels, lives


@dataclass(frozen=True, eq=False)
class Accesses:
    """`lives`: of memory each time that it is taken, a *block*; blocks are known by their places in
    it. `touched`: by step, the blocks that it reads or gives out, each once. `at`: by block, the
    steps that touch it, rising."""

    lives: Lives
    touched: Sequence[Sequence[int]]
    at: Sequence[Sequence[int]]

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
        """Bytes of what one step touches at most: less no tier can do with."""
        size = self.bytes
        return max((sum(size[block] for block in row) for row in self.touched), default=0)


def accesses(
    graph: StepGraph, steps: Sequence[Step], written: Mapping[int, Collection[int]] = NOTHING
) -> Accesses:
    """Of nodes in the order in which they run; what `steps` bring back is not heeded, for who holds
    a block when is decided after this. Raises ValueError as `lives` does."""
    plain = [Step(step.node) for step in steps]
    found = lives(graph, plain, written)
    alias = graph.tensors.alias.tolist()
    given: list[list[int]] = [[] for _ in range(len(graph))]
    for tensor, node in enumerate(graph.tensors.producer.tolist()):
        given[node].append(alias[tensor])
    rows: list[list[int]] = [[] for _ in plain]
    owner, end = found.tensor.tolist(), found.end.tolist()
    for block, (begin, until) in enumerate(zip(found.begin.tolist(), end, strict=True)):
        rows[begin].append(block)
        rows[until - 1].append(block)  # whichever block of its owner was read there
    held: dict[int, int] = {}  # by owner, its latest block
    touched: list[list[int]] = []
    at: list[list[int]] = [[] for _ in owner]
    for now, (step, row) in enumerate(zip(plain, rows, strict=True)):
        used = [alias[tensor] for tensor in graph.reads.lists[step.node]]
        own = [held[one] for one in used if one in held]
        held.update((owner[block], block) for block in row if found.begin[block] == now)
        own += [held[one] for one in given[step.node] if one in held]
        distinct = list(dict.fromkeys(block for block in (*own, *row) if end[block] > now))
        for block in distinct:
            at[block].append(now)
        touched.append(distinct)
    return Accesses(found, touched, at)
