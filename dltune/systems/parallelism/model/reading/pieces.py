"""Positions of a tensor's axes in the output of the operator that it belongs to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.systems.parallelism.schemas.operators import Region


@dataclass(frozen=True)
class Piece:
    """`size` positions; that at p is those of the dimension `dim` from p * stride + start to below
    p * stride + start + extent. `inner`: it is repeated within the steps of another piece."""

    dim: int
    size: int
    stride: int = 1
    start: int = 0
    extent: int = 1
    inner: bool = False

    def region(self, of: int) -> Region:
        """Return the region of this piece that the positions of a reader's dimension need."""
        return Region(self.extent, of, self.stride, self.start)

    def split(self, inside: int) -> tuple[Piece, Piece]:
        """Outer and inner, of `inside` positions."""
        outer = dataclasses.replace(
            self,
            size=self.size // inside,
            stride=self.stride * inside,
            extent=(inside - 1) * self.stride + self.extent,
        )
        return outer, dataclasses.replace(self, size=inside, inner=True)

    def windowed(self, windows: int, stride: int, before: int, reach: int) -> Piece:
        """So many windows over it, each `reach` long, `stride` apart, the first of which begins
        `before` its first position."""
        return dataclasses.replace(
            self,
            size=windows,
            stride=self.stride * stride,
            start=self.start - before * self.stride,
            extent=(reach - 1) * self.stride + self.extent,
        )


# from the outermost piece to the innermost; none: an axis of one position, or that it has not
Axis = tuple[Piece, ...]
View = tuple[Axis, ...]


def whole(sizes: Sequence[int]) -> View:
    """An operator's own output."""
    return tuple((Piece(dim, size),) if size > 1 else () for dim, size in enumerate(sizes))


def reshaped(view: View, shape: Sequence[int]) -> View | None:
    """The same numbers in another shape; None where an axis takes a part of a piece which is none
    of its equal parts."""
    rest = [piece for axis in view for piece in axis if piece.size > 1][::-1]
    found: list[Axis] = []
    for size in shape:
        axis: list[Piece] = []
        while size > 1:
            if not rest:
                return None
            piece = rest.pop()
            if size % piece.size:
                if piece.size % size:
                    return None
                piece, inner = piece.split(piece.size // size)
                rest.append(inner)
            axis.append(piece)
            size //= piece.size
        found.append(tuple(axis))
    return None if rest else tuple(found)


def permuted(view: View, given: Sequence[int], wanted: Sequence[int]) -> View | None:
    """Return the view with its axes in another order; None where sizes do not determine the
    order."""
    axes = [n for n, size in enumerate(given) if size > 1]
    if len({given[n] for n in axes}) < len(axes) or sorted(given) != sorted(wanted):
        return None
    place = {given[n]: n for n in axes}
    return tuple(view[place[size]] if size > 1 else () for size in wanted)


def reduced(
    given: Sequence[int], wanted: Sequence[int], count: int, *, keep: bool
) -> tuple[int, ...] | None:
    """The `count` axes over which a reduction goes; None where shapes allow several, or none."""
    found = [
        axes
        for axes in itertools.combinations(range(len(given)), count)
        if tuple(wanted)
        == tuple(1 if n in axes else size for n, size in enumerate(given) if keep or n not in axes)
    ]
    return found[0] if len(found) == 1 else None


def hull(one: Region, other: Region, size: int) -> Region:
    """Return the region that both read, in a dimension of `size` positions."""
    if (one.of, one.stride) != (other.of, other.stride) or one.of is None:
        return everything(size)
    start = min(one.start, other.start)
    end = max(one.start + one.extent, other.start + other.extent)
    return Region(end - start, one.of, one.stride, start)


def everything(size: int) -> Region:
    return Region(size)


def sizes(axis: Axis) -> tuple[int, ...]:
    return tuple(piece.size for piece in axis)
