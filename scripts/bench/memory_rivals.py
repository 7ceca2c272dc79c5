"""Others' selections of what to compute again, from their papers: Checkmate's programme and its
rounding in two phases (Jain et al., MLSys 2020), and the dynamic programme over a chain that rotor
has (Beaumont et al., Optimal checkpointing for heterogeneous chains, 2019).

Both know nodes with one result each. `contracted` makes such blocks of a step's graph, one after
the other in its order; what they select is an order of the step's nodes again, some of them twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.step_graph import Kind, StepGraph
from dltune.systems.memory.model.schedule import Step, lives

SLOTS = 200  # in which rotor's programme counts memory
SLACK = 0.1  # of the budget, which Checkmate's rounding leaves free


@dataclass(frozen=True)
class Blocks:
    """`members`: by block the nodes of the step, in their order. By block `reads`, the blocks that
    give what it reads, `bytes` of what it gives that others read, and `seconds` of what may run
    again; `once`: whether none of its nodes may."""

    members: Sequence[Sequence[int]]
    reads: Sequence[Sequence[int]]
    bytes: Sequence[int]
    seconds: Sequence[float]
    once: Sequence[bool]


def contracted(
    graph: StepGraph,
    order: Sequence[int],
    seconds: Sequence[float],
    again: Sequence[int],
    ends: Sequence[int],
    small: int = 0,
) -> Blocks:
    """Blocks that end before these positions of the order; the last is its length. Tensors of up to
    `small` bytes are held for nothing."""
    tensors = graph.tensors
    held = (tensors.kind == Kind.RESULT)[tensors.alias].tolist()
    owner, producer = tensors.alias.tolist(), tensors.producer.tolist()
    members = [list(order[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    block = {node: number for number, row in enumerate(members) for node in row}
    reads: list[set[int]] = [set() for _ in members]
    given: list[set[int]] = [set() for _ in members]
    for node in order:
        for one in graph.reads.lists[node]:
            for source in (one, owner[one]):
                large = tensors.bytes[owner[one]] > small
                if held[one] and large and block[producer[source]] != block[node]:
                    reads[block[node]].add(block[producer[source]])
                    given[block[producer[source]]].add(owner[one])
    return Blocks(
        members,
        [sorted(row) for row in reads],
        [
            sum(int(tensors.bytes[one]) for one in row if block[producer[one]] == number)
            for number, row in enumerate(given)
        ],
        [sum(seconds[node] for node in row if again[node]) for row in members],
        [not any(again[node] for node in row) for row in members],
    )


def ordered(
    blocks: Blocks, runs: Sequence[int], graph: StepGraph, again: Sequence[int]
) -> list[Step]:
    """The step's nodes as blocks run; of one that runs again those that may."""
    steps: list[Step] = []
    ran: set[int] = set()
    count = 0
    for block in runs:
        for node in blocks.members[block]:
            if node not in ran or again[node] > count:
                steps.append(Step(node))
            count += node not in ran
            ran.add(node)
    lives(graph, steps)  # raises where something reads what is not there
    return steps


# --- Checkmate

Linear = list[tuple[int, float]]


class _Stages:
    """Stage t computes block t, and anew what it needs of those before. Variables: computed in a
    stage (R), kept from the stage before (S), freed after a computation (F), and memory (U)."""

    def __init__(self, blocks: Blocks, budget: float) -> None:
        self.blocks, self.count = blocks, len(blocks.members)
        self.cost: list[float] = []
        self.top: list[float] = []
        self.low: list[float] = []
        self.rows: list[tuple[Linear, float, float]] = []
        n, scale = self.count, max(budget, 1)
        size = [one / scale for one in blocks.bytes]
        triangle = [(t, i) for t in range(n) for i in range(t + 1)]
        # what must not run again runs in its own stage alone
        self.r = {
            (t, i): self._new(blocks.seconds[i], 1 if t == i or not blocks.once[i] else 0, t == i)
            for t, i in triangle
        }
        self.s = {(t, i): self._new() for t in range(1, n) for i in range(t)}
        users: list[list[int]] = [[] for _ in range(n)]
        for k, row in enumerate(blocks.reads):
            for i in row:
                users[i].append(k)
        for t, k in triangle:
            for i in blocks.reads[k]:
                self._row([(self.r[t, k], -1), (self.r[t, i], 1), *self._s(t, i)], 0)
        for t, i in self.s:
            self._row([(self.s[t, i], -1), (self.r[t - 1, i], 1), *self._s(t - 1, i)], 0)
        free = {}
        for t, k in triangle:
            for i in (*blocks.reads[k], k):
                free[t, i, k] = self._new()
                later = [j for j in users[i] if k < j <= t]
                held = [(self.s[t + 1, i], 1.0)] if t + 1 < n else []
                uses = [*held, *((self.r[t, j], 1.0) for j in later)]
                # freed just where it is computed with, not kept, and not read later in the stage
                self._row([(free[t, i, k], -1), (self.r[t, k], 1)], 0)
                for one in uses:
                    self._row([(free[t, i, k], -1), (one[0], -1)], -1)
                self._row([(free[t, i, k], 1), (self.r[t, k], -1), *uses], 0)
        for t in range(n):
            before: Linear = [(self.s[t, i], size[i]) for i in range(t)] if t else []
            for k in range(t + 1):
                u = self._new()
                self._row([(u, -1), (self.r[t, k], size[k]), *before], 0, 0)
                before = [(u, 1.0), *((free[t, i, k], -size[i]) for i in (*blocks.reads[k], k))]

    def _new(self, cost: float = 0.0, top: float = 1.0, low: float = 0.0) -> int:
        self.cost.append(cost)
        self.top.append(top)
        self.low.append(low)
        return len(self.cost) - 1

    def _s(self, t: int, i: int) -> Linear:
        return [(self.s[t, i], 1.0)] if (t, i) in self.s else []

    def _row(self, row: Linear, least: float, most: float = math.inf) -> None:
        self.rows.append((row, least, most))

    def solve(self, whole: bool, limit: float) -> np.ndarray | None:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix

        entries = [(k, *one) for k, (row, *_) in enumerate(self.rows) for one in row]
        at, variable, factor = zip(*entries, strict=True)
        matrix = csr_matrix((factor, (at, variable)), shape=(len(self.rows), len(self.cost)))
        integral = np.zeros(len(self.cost))
        if whole:
            integral[[*self.r.values(), *self.s.values()]] = 1
        found = milp(
            np.array(self.cost),
            constraints=LinearConstraint(
                matrix, [row[1] for row in self.rows], [row[2] for row in self.rows]
            ),
            bounds=Bounds(self.low, self.top),
            integrality=integral,
            options={"time_limit": limit},
        )
        return found.x


def checkmate(blocks: Blocks, budget: int, limit: float) -> list[int] | None:
    """Blocks as they run; None where nothing was found."""
    stages = _Stages(blocks, budget)
    x = stages.solve(True, limit)
    if x is None:
        return None
    return [i for t in range(stages.count) for i in range(t + 1) if x[stages.r[t, i]] > 0.5]


def checkmate_rounded(blocks: Blocks, budget: int, limit: float) -> list[int] | None:
    """What is kept is rounded; what must be computed follows."""
    stages = _Stages(blocks, budget * (1 - SLACK))
    x = stages.solve(False, limit)
    if x is None:
        return None
    n = stages.count
    kept = [{i for i in range(t) if t and x[stages.s[t, i]] > 0.5} for t in range(n)]
    # what cannot be computed again is kept while it is read
    for i in range(n):
        if blocks.once[i]:
            last = max((k for k, row in enumerate(blocks.reads) if i in row), default=i)
            for t in range(i + 1, last + 1):
                kept[t].add(i)
    runs: list[int] = []
    for t in range(n):
        needed: set[int] = set()
        open = [t, *(kept[t + 1] - kept[t] if t + 1 < n else ())]
        while open:
            one = open.pop()
            if one not in needed and one not in kept[t]:
                needed.add(one)
                open += blocks.reads[one]
        runs += sorted(needed)
    return runs


# --- rotor


def chain(blocks: Blocks, half: int) -> tuple[list[int], list[list[int]]]:
    """Blocks before `half` are the stages of a chain; those behind it belong to the way back of the
    last stage that none before them has read less than: by stage."""
    back: list[list[int]] = [[] for _ in range(half)]
    stage = half - 1
    for block in range(half, len(blocks.members)):
        stage = min([stage, *(one for one in blocks.reads[block] if one < half)])
        back[stage].append(block)
    return list(range(half)), back


def rotor(blocks: Blocks, half: int, budget: int) -> list[int] | None:
    """Blocks as they run; None where the programme finds nothing. A stage's output is taken to be
    what the next stages read, and all that it gives to be what its way back needs."""
    stages, back = chain(blocks, half)
    slot = budget / SLOTS
    full = [math.ceil(blocks.bytes[one] / slot) for one in stages]
    forward = [set(blocks.reads[one]) for one in stages]
    output = [full[one] if any(one in row for row in forward[one + 1 :]) else 0 for one in stages]
    way = [blocks.seconds[one] for one in stages]

    @functools.cache
    def least(s: int, t: int, m: int) -> tuple[float, int]:
        """Seconds for stages s to t and back with so many slots; and up to which stage only the
        last output is kept first (s: all of stage s)."""
        if m < full[s]:
            return math.inf, s
        if s == t:
            return way[s], s
        best = (way[s] + least(s + 1, t, m - full[s])[0], s)
        for cut in range(s + 1, t + 1):
            if m < output[cut - 1] or any(blocks.once[one] for one in range(s, cut)):
                continue
            cost = sum(way[s:cut]) + least(cut, t, m - output[cut - 1])[0] + least(s, cut - 1, m)[0]
            best = min(best, (cost, cut))
        return best

    def run(s: int, t: int, m: int) -> list[int]:
        if s == t:
            return [s, *back[s]]
        cut = least(s, t, m)[1]
        if cut == s:
            return [s, *run(s + 1, t, m - full[s]), *back[s]]
        return [*range(s, cut), *run(cut, t, m - output[cut - 1]), *run(s, cut - 1, m)]

    if math.isinf(least(0, half - 1, SLOTS)[0]):
        return None
    return run(0, half - 1, SLOTS)
