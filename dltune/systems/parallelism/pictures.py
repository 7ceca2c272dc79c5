"""The strategy as FlexFlow's Figures 13 and 14 draw it: operators cut by degrees, a colour for each
device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from dltune.base.formatting import Tile, Tiles
from dltune.systems.parallelism.schemas.strategy import Divided, Parallelism

# parts on one page
MOST = 20_000


def tiles(section: Parallelism, alike: Sequence[tuple[str, Sequence[Divided]]]) -> Iterator[Tiles]:
    """`alike`: groups of operators, each drawn once. As many as there is room for."""
    drawn, parts = [], 0
    for name, those in alike:
        parts += len(those[0].devices)
        if parts > MOST:
            break
        drawn.append(_tile(name, those))
    title = "divided operators: samples from top to bottom, other dimensions from left to right"
    if len(drawn) < len(alike):
        title += f"; first {len(drawn)} of {len(alike)}"
    yield Tiles(title, section.devices, drawn)


def _tile(name: str, those: Sequence[Divided]) -> Tile:
    one = those[0]
    down, across = _sides(one)
    steps = [math.prod((*one.degrees[at + 1 :], one.replicas)) for at in range(len(one.degrees))]

    def part(places: Sequence[tuple[int, int]]) -> Sequence[int]:
        first = sum(steps[dimension] * place for dimension, place in places)
        return one.devices[first : first + one.replicas]

    return Tile(
        name if len(those) == 1 else f"{name} x {len(those)}",
        divided(one),
        [[part((*y, *x)) for x in _places(one, across)] for y in _places(one, down)],
    )


def _sides(one: Divided) -> tuple[list[int], list[int]]:
    """The dimensions that are cut from top to bottom, and from left to right."""
    every = range(len(one.dimensions))
    down = [at for at in every if one.dimensions[at] == "sample"]
    return down, [at for at in every if at not in down]


def _places(one: Divided, dimensions: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    return itertools.product(*([(at, n) for n in range(one.degrees[at])] for at in dimensions))


def divided(one: Divided) -> str:
    """Return text such as "sample 4, channel 2, each part on 2 devices"."""
    parts = (f"{n} {d}" for n, d in zip(one.dimensions, one.degrees, strict=True) if d > 1)
    copies = f"each part on {one.replicas} devices" if one.replicas > 1 else ""
    return ", ".join(filter(None, (*parts, copies))) or "whole"
