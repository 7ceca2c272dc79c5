"""The fewest independent sets that hold all elements of a matroid.

Which events fit a CPU's counters together is a transversal matroid: a set fits when each event can
be given a counter of its own among those that can count it. Edmonds' matroid partitioning (1965)
finds the fewest sets with polynomially many questions, where trying all ways would take
exponentially many.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def partition(
    elements: Sequence[T], independent: Callable[[Sequence[T]], bool]
) -> list[tuple[T, ...]]:
    """`elements` in the fewest sets of which each is `independent`, each in the order given.

    Each element must be independent by itself. Where `independent` is not quite a matroid's (two
    events that share a register, say), each set still is, and there may be more than the fewest.
    """

    @functools.cache
    def fits(members: frozenset[int]) -> bool:
        return independent([elements[i] for i in sorted(members)])

    sets: list[frozenset[int]] = []
    for element in range(len(elements)):
        sets = _with(sets, element, fits) or [*sets, frozenset({element})]
    return [tuple(elements[i] for i in sorted(members)) for members in sets]


def _with(
    sets: list[frozenset[int]], element: int, fits: Callable[[frozenset[int]], bool]
) -> list[frozenset[int]] | None:
    """The sets with one more element, others moved between them; None when there is no way."""
    home = {member: index for index, members in enumerate(sets) for member in members}
    before: dict[int, int | None] = {element: None}
    waiting = deque([element])
    while waiting:
        x = waiting.popleft()
        for index, members in enumerate(sets):
            if x in members:
                continue
            if fits(members | {x}):
                return _moved(sets, home, before, x, index, fits)
            for y in sorted(members):
                if y not in before and fits(members - {y} | {x}):
                    before[y] = x
                    waiting.append(y)
    return None


def _moved(
    sets: list[frozenset[int]],
    home: dict[int, int],
    before: dict[int, int | None],
    last: int,
    target: int,
    fits: Callable[[frozenset[int]], bool],
) -> list[frozenset[int]] | None:
    """Each element of the path that ends with `last` takes its successor's place."""
    places = dict(home)
    x: int | None = last
    while x is not None:
        target, places[x] = home.get(x, target), target
        x = before[x]
    moved = [frozenset(e for e, at in places.items() if at == i) for i in range(len(sets))]
    # along a shortest path of a matroid this always holds
    return moved if all(map(fits, moved)) else None
