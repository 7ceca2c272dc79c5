"""Which results to give up and compute again so that a step needs no more than a budget of bytes.

Ours: where the most memory is needed, the result is given up that frees the most bytes for a second
of computing again, until the budget is met; then what has become needless is taken back. It knows
bytes, as op times were measured, where the published strategies know layers and segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.graph.liveness import Lives, peak
from dltune.graph.step_graph import Kind, StepGraph
from dltune.memory.schedule import NOTHING, Step, lives


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
    `order` have run it may run once more (0: never), giving the same and doing nothing else.
    `written`: as of `lives`. Raises BudgetTooSmall."""
    search = _Search(graph, seconds, again, written, [(node, 0) for node in order])
    while search.peak > budget:
        if not search.shrink():
            raise BudgetTooSmall(search.peak)
    search.tidy(budget)
    steps = [Step(node) for node, _ in search.run]
    return Selection(steps, search.peak, sum(seconds[node] for node, group in search.run if group))


# one node in the order in which they run, and the number of what was decided at once: 0 for the
# step as given
_Run = list[tuple[int, int]]


class _Search:
    def __init__(
        self,
        graph: StepGraph,
        seconds: Sequence[float],
        again: Sequence[int],
        written: Mapping[int, Collection[int]],
        run: _Run,
    ) -> None:
        self.graph, self.seconds, self.again, self.written = graph, seconds, again, written
        self.reads = graph.reads.lists
        self.producer = graph.tensors.producer.tolist()
        self.alias = graph.tensors.alias.tolist()
        self.held = (graph.tensors.kind == Kind.RESULT)[graph.tensors.alias].tolist()
        self.groups = 0
        self._set(run)

    def _set(self, run: _Run) -> None:
        self.run = run
        self.lives = self._lives(run)
        self.peak, self.moment, _ = peak(self.lives)

    def _lives(self, run: _Run) -> Lives:
        return lives(self.graph, [Step(node) for node, _ in run], self.written)

    def shrink(self) -> bool:
        """Gives up one result that is held where the peak is, and not read there. Whether less
        memory is needed there now, and nowhere more than the peak was."""
        for _, group in sorted(self._candidates(), key=lambda one: -one[0]):
            run = self._with(*group)
            if run is None:
                continue
            found = self._lives(run)
            level, moment, _ = peak(found)
            if (level, _crowd(found, level)) < (self.peak, _crowd(self.lives, self.peak)):
                self.groups += 1
                self.run, self.lives, self.peak, self.moment = run, found, level, moment
                return True
        return False

    def tidy(self, budget: int) -> None:
        """Takes back what the budget does not need any more, the dearest first."""
        cost: dict[int, float] = {}
        for node, group in self.run:
            if group:
                cost[group] = cost.get(group, 0.0) + self.seconds[node]
        for group in sorted(cost, key=lambda one: -cost[one]):
            run = [one for one in self.run if one[1] != group]
            if peak(self._lives(run))[0] <= budget:
                self._set(run)

    def _candidates(self) -> Iterator[tuple[float, tuple[int, list[int]]]]:
        """Bytes a second of what could be given up; where it would be computed again, and the
        nodes."""
        found, at = self.lives, self.moment
        there = (found.begin < at) & (found.end > at + 1)
        done = {node for node, _ in self.run[:at]}
        uses = self._uses({int(one) for one in found.tensor[there]})
        for number in np.flatnonzero(there):
            owner = int(found.tensor[number])
            begin, end = int(found.begin[number]), int(found.end[number])
            within = [(p, tensor) for p, tensor in uses.get(owner, ()) if begin < p < end]
            if any(p == at for p, _ in within):
                continue
            later = [(p, tensor) for p, tensor in within if p > at]
            if not later:
                continue
            first = later[0][0]
            # what comes into the same memory later follows by itself
            wanted = {tensor for _, tensor in later if self.producer[tensor] in done}
            nodes = self._nodes(wanted, owner, first)
            if nodes:
                cost = sum(self.seconds[node] for node in nodes)
                yield float(found.bytes[number]) / (cost + 1e-9), (first, nodes)

    def _uses(self, owners: set[int]) -> dict[int, list[tuple[int, int]]]:
        """By owner of memory, positions at which one of its tensors is read, and that tensor."""
        found: dict[int, list[tuple[int, int]]] = {}
        for at, (node, _) in enumerate(self.run):
            for tensor in self.reads[node]:
                if self.alias[tensor] in owners:
                    found.setdefault(self.alias[tensor], []).append((at, tensor))
        return found

    def _nodes(self, tensors: set[int], owner: int, first: int) -> list[int] | None:
        """What must run before position `first` for these to be there anew; None where something of
        it must not run there."""
        alive = self._alive(first)
        ran = sum(not group for _, group in self.run[:first])
        found: dict[int, None] = {}
        stack = [(self.producer[tensor], False) for tensor in sorted(tensors, reverse=True)]
        while stack:
            node, ready = stack.pop()
            if ready:
                found.setdefault(node)
                continue
            if node in found:
                continue
            if self.again[node] <= ran:
                return None
            stack.append((node, True))
            for tensor in self.reads[node]:
                root = self.alias[tensor]
                if self.held[tensor] and (root == owner or root not in alive):
                    stack.append((self.producer[tensor], False))
        return list(found)

    def _alive(self, at: int) -> set[int]:
        """Owners of the memory that is held at the peak or here."""
        found = self.lives
        here = (found.begin < at) & (found.end > at)
        before = (found.begin <= self.moment) & (found.end > self.moment)
        return {int(one) for one in found.tensor[here | before]}

    def _with(self, first: int, nodes: Sequence[int]) -> _Run:
        added = [(node, self.groups + 1) for node in nodes]
        return [*self.run[:first], *added, *self.run[first:]]


def _crowd(found: Lives, level: int) -> int:
    """For how many steps as much is needed."""
    last = int(found.end.max(initial=0)) + 1
    change = np.zeros(last, np.int64)
    np.add.at(change, found.begin, found.bytes)
    np.add.at(change, found.end, -found.bytes)
    return int((np.cumsum(change) == level).sum())
