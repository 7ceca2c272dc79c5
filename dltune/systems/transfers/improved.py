"""An order that is never worse than the paper's, and closes what these leave open (ours).

A step is as long as its worst receive makes it (`efficiency.makespan`): the moment at which that
has come, and the work that waits for it or for later ones. Only two kinds of moves make that
shorter: a receive before it that made nothing ready goes behind it, or all that some ops still need
comes before it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from dltune.simulate.overlap import Bounds, Partition, makespan, schedule, tac, tic

# orders that are tried: some two seconds for the 363 receives of ResNet-152
LOOKS = 5_000


def improved(partition: Partition, looks: int = LOOKS) -> list[int]:
    """Places of the receives. The better of TIC's and TAC's order, moved while that helps, then
    from shuffled neighbours of the best; the same for the same partition."""
    search = _Search(partition, looks)
    search.descend(min(tac(partition), tic(partition), key=search.length))
    chance = random.Random(len(partition))
    while search.goes_on():
        search.descend(_shaken(search.best, chance))
    return search.best


class _Search:
    def __init__(self, partition: Partition, looks: int) -> None:
        self._partition = partition
        self._left = looks
        self._lower = Bounds.of(partition).lower
        self.best: list[int] = []
        self._shortest: int | None = None

    def goes_on(self) -> bool:
        return self._left > 0 and len(self.best) > 1 and self._shortest != self._lower

    def length(self, order: list[int]) -> int:
        """Its makespan; the best order of all that were asked for is kept."""
        self._left -= 1
        length = makespan(self._partition, order)
        if self._shortest is None or length < self._shortest:
            self._shortest, self.best = length, order
        return length

    def descend(self, order: list[int]) -> None:
        length = self.length(order)
        moved: list[int] | None = order
        while moved and self.goes_on():
            moved = None
            for other in _moves(self._partition, order):
                if not self.goes_on():
                    return
                if (shorter := self.length(other)) < length:
                    order, length, moved = other, shorter, other
                    break


def _moves(partition: Partition, order: list[int]) -> Iterator[list[int]]:
    """Yield orders that can be shorter, derived from the wait of this order's worst receive."""
    came, ready, ends = schedule(partition, order)
    if not len(ends):
        return
    worst = int(ready[int(ends.argmax())])
    early = [receive for receive in order if came[receive] <= worst]
    late = [receive for receive in order if came[receive] > worst]
    # all that some ops still need, the ops with the most work for their transfers first
    missing = partition.needs & (came >= worst)
    cost = missing @ partition.transfer
    waiting = np.flatnonzero(missing.any(axis=1))
    for row in waiting[np.argsort(cost[waiting] / np.maximum(partition.work[waiting], 1))].tolist():
        wanted = set(np.flatnonzero(missing[row]).tolist())
        first = [r for r in early if came[r] < worst]
        rest = [r for r in order if came[r] >= worst]
        yield [*first, *(r for r in rest if r in wanted), *(r for r in rest if r not in wanted)]
    for receive in reversed(early):
        yield [*(r for r in early if r != receive), receive, *late]
        if late:
            yield [*(r for r in early if r != receive), late[0], receive, *late[1:]]


def _shaken(order: list[int], chance: random.Random) -> list[int]:
    """A few receives elsewhere."""
    shaken = list(order)
    for _ in range(chance.randint(1, 3)):
        receive = shaken.pop(chance.randrange(len(shaken)))
        shaken.insert(chance.randrange(len(shaken) + 1), receive)
    return shaken
