"""A search over the orders in which a step's nodes run, some of them again.

Ours: where the most memory is needed, the result is given up that frees the most bytes for a second
of computing again, until a budget is met; then needless runs are taken back. Parts of these
decisions are made again by chance, and kept where that takes less time (large neighbourhood search,
Shaw 1998).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.step_graph import Amounts, Flags, Integers, Kind, Lives, StepGraph
from dltune.systems.memory.model.meter import Meter
from dltune.systems.memory.model.schedule import levels

ROUNDS = 20  # of deciding again, at most
LARGE = 8_000  # nodes; in larger steps nothing is decided again, a round takes minutes
PATIENCE = 5  # rounds in a row that brought nothing
# of the bytes a second that a result is thought to free: standard deviation of the logarithm
_SPREAD = 0.3


@dataclass(frozen=True, eq=False)
class Run:
    """`nodes` as they run, and of each the number of what was decided at once: 0 for the step as
    given. `level`: bytes by position, the most of which are needed at `moment`."""

    nodes: Integers
    group: Integers
    lives: Lives
    level: Amounts
    peak: int
    moment: int

    def better(self, other: Run) -> bool:
        """Return True if the peak is lower, or as high in fewer places."""
        return (self.peak, int((self.level == self.peak).sum())) < (
            other.peak,
            int((other.level == other.peak).sum()),
        )


class Search:
    """`now`: the order that it has come to. Arguments as of `selection.select`."""

    def __init__(
        self,
        graph: StepGraph,
        order: Sequence[int],
        seconds: Sequence[float],
        again: Sequence[int],
        written: Mapping[int, Collection[int]],
    ) -> None:
        self.seconds, self.again = seconds, again
        self.meter = Meter(graph, order, written)
        self.reads = graph.reads.lists
        self.producer = graph.tensors.producer.tolist()
        self.alias = graph.tensors.alias.tolist()
        self.held = (graph.tensors.kind == Kind.RESULT)[graph.tensors.alias].tolist()
        self.times = np.array(seconds, np.float64)
        self.groups = 0
        self.now = self.measured(np.array(order, np.int32), np.zeros(len(order), np.int32))

    def begin(self, nodes: Integers, again: Flags) -> None:
        """With another order; `again`: by position, whether it is no first run."""
        group = np.cumsum(again).astype(np.int32)
        self.groups = int(group.max(initial=0))
        self.now = self.measured(nodes, np.where(again, group, 0).astype(np.int32))

    def measured(self, nodes: Integers, group: Integers) -> Run:
        lives = self.meter.lives(nodes, np.flatnonzero(group == 0).astype(np.int64))
        level, _ = levels(lives, len(nodes))
        moment = int(np.argmax(level)) if len(level) else 0
        return Run(nodes, group, lives, level, int(level.max(initial=0)), moment)

    @property
    def cost(self) -> float:
        """Return the seconds of the nodes that run again."""
        return float(self.times[self.now.nodes[self.now.group > 0]].sum())

    def shrink(self, lot: np.random.Generator | None = None) -> bool:
        """Give up one result that is held where the peak is, and not read there. Return True if
        less memory is needed there now, and nowhere more than the peak was. `lot`: by chance
        another than the best."""
        found = list(self._candidates())
        score = np.array([one[0] for one in found])
        if lot is not None:
            score *= np.exp(lot.normal(0.0, _SPREAD, len(score)))
        for number in np.argsort(-score, kind="stable").tolist():
            _, first, nodes = found[number]
            group = np.full(len(nodes), self.groups + 1, np.int32)
            run = self.measured(
                np.insert(self.now.nodes, first, nodes),
                np.insert(self.now.group, first, group),
            )
            if run.better(self.now):
                self.groups += 1
                self.now = run
                return True
        return False

    def descend(self, budget: int) -> None:
        """Gives results up until the budget is met, or none helps."""
        while self.now.peak > budget and self.shrink():
            pass

    def tidy(self, budget: int) -> None:
        """Take back runs that the budget does not need any more, the dearest first: those that were
        decided at once, then node by node."""
        cost = np.bincount(self.now.group, self.times[self.now.nodes])
        for group in np.argsort(-cost, kind="stable").tolist():
            there = self.now.group == group
            if group and there.any():
                self._take_back(there, budget)
        again = np.flatnonzero(self.now.group)
        number = np.arange(len(self.now.nodes))
        for one in again[np.argsort(-self.times[self.now.nodes[again]], kind="stable")].tolist():
            there = number == one
            if self._take_back(there, budget):
                number = number[~there]

    def _take_back(self, there: Flags, budget: int) -> bool:
        run = self.measured(self.now.nodes[~there], self.now.group[~there])
        if run.peak > budget:
            return False
        self.now = run
        return True

    def improve(self, budget: int) -> None:
        """Decide parts again: some that are close together, or some anywhere."""
        lot = np.random.default_rng(0)
        best, least, idle = self.now, self.cost, 0
        for _ in range(ROUNDS if len(self.reads) <= LARGE else 0):
            groups = np.unique(best.group[best.group > 0])
            if not len(groups) or not least or idle == PATIENCE:
                break
            count = max(1, int(len(groups) * lot.uniform(0.02, 0.2)))
            if lot.random() < 0.5:
                chosen = lot.choice(groups, count, replace=False)
            else:
                place = np.array([int(np.argmax(best.group == group)) for group in groups])
                chosen = groups[np.argsort(abs(place - lot.choice(place)), kind="stable")[:count]]
            kept = ~np.isin(best.group, chosen)
            self.now = self.measured(best.nodes[kept], best.group[kept])
            for _ in range(3 * count + 10):
                if self.now.peak <= budget or self.cost >= least or not self.shrink(lot):
                    break
            if self.now.peak <= budget:
                self.tidy(budget)
            idle += 1
            if self.now.peak <= budget and self.cost < least:
                best, least, idle = self.now, self.cost, 0
        self.now = best

    def _candidates(self) -> Iterator[tuple[float, int, list[int]]]:
        """Bytes a second of what could be given up; where it would be computed again, and the
        nodes."""
        now, found = self.now, self.now.lives
        at = now.moment
        done = set(now.nodes[:at].tolist())
        ran = np.cumsum(now.group == 0)
        here = set(found.tensor[(found.begin <= at) & (found.end > at)].tolist())
        uses = self._uses(here)
        alive: dict[int, set[int]] = {}  # by where it would be computed: owners of held memory
        for number in np.flatnonzero((found.begin < at) & (found.end > at + 1)).tolist():
            owner = int(found.tensor[number])
            begin, end = int(found.begin[number]), int(found.end[number])
            within = [(p, tensor) for p, tensor in uses.get(owner, ()) if begin < p < end]
            later = [(p, tensor) for p, tensor in within if p > at]
            if not later or any(p == at for p, _ in within):
                continue
            first = later[0][0]
            if first not in alive:
                there = (found.begin < first) & (found.end > first)
                alive[first] = here.union(found.tensor[there].tolist())
            # later content of the same memory follows by itself
            wanted = {tensor for _, tensor in later if self.producer[tensor] in done}
            nodes = self._nodes(wanted, owner, alive[first], int(ran[first - 1]))
            if nodes:
                cost = sum(self.seconds[node] for node in nodes)
                yield float(found.bytes[number]) / (cost + 1e-9), first, nodes

    def _uses(self, owners: set[int]) -> dict[int, list[tuple[int, int]]]:
        """Return by owner of memory, positions at which one of its tensors is read, and that
        tensor."""
        at, read = self.meter.reads(self.now.nodes)
        owner = self.meter.alias[read]
        wanted = np.isin(owner, list(owners))
        found: dict[int, list[tuple[int, int]]] = {}
        for one, *use in zip(*(row[wanted].tolist() for row in (owner, at, read)), strict=True):
            found.setdefault(one, []).append((use[0], use[1]))
        return found

    def _nodes(self, tensors: set[int], owner: int, alive: set[int], ran: int) -> list[int] | None:
        """Return the nodes that must run, once `ran` of the order have, for these to be there
        again; None where something of it must not run there. `alive`: owners of the memory held at
        the peak or there."""
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
