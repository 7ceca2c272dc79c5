"""Graphs with transfers for tests: what depends on what, and whether bins ever hang."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Dag:
    """Random graph: `inputs` of each node, and the transfers among them with their places."""

    inputs: tuple[tuple[int, ...], ...]
    places: dict[int, int]

    @property
    def fetches(self) -> list[int]:
        wanted = {parent for parents in self.inputs for parent in parents}
        return [node for node in range(len(self.inputs)) if node not in wanted]


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    n = draw(st.integers(1, 18))
    inputs = tuple(
        tuple(draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True))) if node else ()
        for node in range(n)
    )
    transfers = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9, unique=True))
    return Dag(inputs, {node: place for place, node in enumerate(transfers)})


def concurrent(before: Sequence[int], one: int, other: int) -> bool:
    """Whether neither of two IDs depends on the other; `before`: those that each depends on."""
    return not (before[one] >> other & 1 or before[other] >> one & 1)


def finishes(dag: Dag, bins: Sequence[Sequence[int]], ranks: int, chance: random.Random) -> bool:
    """Ranks run the graph in any order that it permits; a bin of transfers' nodes travels when each
    rank has asked for all in it, after the bins before it. A transfer has ended with the last bin
    that it is in. Whether all comes to its end: nobody waits for good."""
    pieces = collections.Counter(itertools.chain.from_iterable(bins))
    ended: list[set[int]] = [set() for _ in range(ranks)]
    asked: list[set[int]] = [set() for _ in range(ranks)]
    waiting = list(bins)
    while any(len(mine) < len(dag.inputs) for mine in ended):
        moves: list[tuple[int, int]] = [
            (rank, node)
            for rank in range(ranks)
            for node, parents in enumerate(dag.inputs)
            if node not in ended[rank] | asked[rank] and ended[rank].issuperset(parents)
        ]
        travels = bool(waiting) and all(mine.issuperset(waiting[0]) for mine in asked)
        if not moves and not travels:
            return False
        if travels and (not moves or chance.random() < 0.5):
            come = waiting.pop(0)
            pieces.subtract(come)
            whole = {node for node in come if not pieces[node]}
            for rank in range(ranks):
                ended[rank].update(whole)
                asked[rank].difference_update(whole)
        else:
            rank, node = chance.choice(moves)
            (asked if node in dag.places else ended)[rank].add(node)
    return True
