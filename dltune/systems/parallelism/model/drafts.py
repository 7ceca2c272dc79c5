"""Operators while they are put together from the ops of a step: dimensions, inputs and places."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dltune.systems.parallelism.model.roles import Roles, Shape, StepView, Tensor
from dltune.systems.parallelism.schemas.operators import (
    MOST_DIMENSIONS,
    Dimension,
    Input,
    Kind,
    Region,
)


@dataclass(frozen=True)
class Piece:
    """`size` positions; that at p is those of the dimension `dim` from p * stride + start to below
    p * stride + start + extent. `inner`: it is repeated within the steps of another piece.

    Pieces are the positions of a tensor's axes in the output of the operator that it belongs to.
    """

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


@dataclass
class Length:
    """A dimension of an operator; `reads`: pieces of others' output that its positions need, by
    their operator."""

    size: int
    kind: Kind
    reads: list[tuple[int, Piece]] = field(default_factory=list)


@dataclass
class Draft:
    """An operator that begins with the op `anchor`. `inputs`: by operator, the parts that it reads
    of each of its dimensions; `nodes`: all ops that compute it."""

    anchor: int
    data: bool
    dimensions: list[Length]
    inputs: dict[int, list[Region]] = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)


class Drafts(list[Draft]):
    """In the order of the network."""

    def begin(
        self, anchor: int, axes: Sequence[Sequence[Length]], read: Sequence[int], *, data: bool
    ) -> tuple[int, View]:
        """An operator whose output has these axes, each of one or more dimensions. `read`: all
        operators that it reads; of those dimensions that no length names it reads everything."""
        draft = Draft(anchor, data, [one for axis in axes for one in axis], {}, [anchor])
        number = len(self)
        self.append(draft)
        if sum(one.kind == "parameter" for one in draft.dimensions) > 1:
            for one in [one for one in draft.dimensions if one.kind == "parameter"][1:]:
                one.kind = "whole"
        for one in [one for one in draft.dimensions if one.kind == "sample"][1:]:
            one.kind = "attribute"
        for other in read:
            self._read(number, other)
        places = iter(range(len(draft.dimensions)))
        return number, tuple(
            tuple(
                Piece(place, one.size)
                for one, place in zip(axis, places, strict=False)
                if one.size > 1
            )
            for axis in map(list, axes)
        )

    def inherited(self, operator: int, axis: Axis) -> list[Length]:
        """Return dimensions along the pieces of an axis of an operator's tensor, position by
        position."""
        return [Length(p.size, self.kind(operator, p), [(operator, p)]) for p in axis]

    def kind(self, operator: int, piece: Piece) -> Kind:
        given = self[operator].dimensions[piece.dim].kind
        return "sample" if given == "sample" and not piece.inner else "attribute"

    def align(self, number: int, view: View, operator: int, other: View) -> View | None:
        """For an op of the operator `number` that takes a tensor of that operator and a tensor of
        another, position by position: make the pieces read of the other follow. Return the tensor
        that it gives out; None where the axes do not go together."""
        rank = max(len(view), len(other))
        view = ((),) * (rank - len(view)) + view
        other = ((),) * (rank - len(other)) + other
        pairs = list(zip(view, other, strict=True))
        if any(own and its and sizes(own) != sizes(its) for own, its in pairs):
            return None
        draft, found = self[number], list[Axis]()
        known = draft.inputs.get(operator)
        for own, its in pairs:
            if its and not own:
                found.append(self._more(number, (*view, *found), sizes(its)))
            else:
                found.append(own)
        regions = [everything(one.size) for one in self[operator].dimensions]
        for own, its in zip(found, other, strict=True):
            for mine, piece in zip(own, its, strict=False):
                if not piece.inner and draft.dimensions[mine.dim].kind != "whole":
                    regions[piece.dim] = piece.region(mine.dim)
        if known is not None:
            both = zip(self._grown(operator, known), regions, strict=True)
            lengths = [length.size for length in self[operator].dimensions]
            regions = [hull(*pair, size) for pair, size in zip(both, lengths, strict=True)]
        draft.inputs[operator] = regions
        return tuple(found)

    def widened(self, number: int, view: View, shape: Sequence[int]) -> View:
        """Return a tensor with further axes, those of weights or constants."""
        found = list(view)
        for n, size in enumerate(shape):
            if size > 1 and not found[n]:
                found[n] = self._more(number, found, [size])
        return tuple(found)

    def _more(self, number: int, view: Sequence[Axis], lengths: Sequence[int]) -> Axis:
        """Dimensions that come back after a reduction, whose results all their positions need."""
        dimensions = self[number].dimensions
        taken = {piece.dim for axis in view for piece in axis}
        found = []
        for size in lengths:
            again = (
                n
                for n, one in enumerate(dimensions)
                if n not in taken and (one.size, one.kind) == (size, "whole")
            )
            place = next(again, len(dimensions))
            if place == len(dimensions):
                dimensions.append(Length(size, "whole"))
            taken.add(place)
            found.append(Piece(place, size))
        return tuple(found)

    def _read(self, number: int, operator: int) -> None:
        """Set the region that the lengths name, for each dimension: where several do, by the
        outermost piece, and the others cannot be divided."""
        draft = self[number]
        regions: list[Region] = []
        for dim, given in enumerate(self[operator].dimensions):
            named = [
                (of, piece)
                for of, length in enumerate(draft.dimensions)
                for reader, piece in length.reads
                if (reader, piece.dim) == (operator, dim)
            ]
            outer = [(of, piece) for of, piece in named if not piece.inner]
            for of, piece in named:
                if piece.inner:
                    draft.dimensions[of].kind = "whole"
            found = [piece.region(of) for of, piece in outer] or [everything(given.size)]
            region = found[0]
            for more in found[1:]:
                region = hull(region, more, given.size)
            regions.append(region)
        draft.inputs[operator] = regions

    def _grown(self, operator: int, known: Sequence[Region]) -> list[Region]:
        """With the dimensions that were added to it since, read whole."""
        more = self[operator].dimensions[len(known) :]
        return [*known, *(everything(length.size) for length in more)]

    def finished(self) -> list[tuple[tuple[Dimension, ...], tuple[Input, ...]]]:
        """Return the dimensions of each operator, at most as many as there can be, and its
        inputs."""
        places = [_places(draft.dimensions) for draft in self]
        found = []
        for draft, place in zip(self, places, strict=True):
            inputs = []
            for operator, known in sorted(draft.inputs.items()):
                there = places[operator]
                given, regions = self[operator].dimensions, self._grown(operator, known)
                count = max(there, default=0) + 1
                kept: list[Region] = []
                for position in range(count):
                    lengths = [n for n, p in enumerate(there) if p == position]
                    if len(lengths) == 1:
                        kept.append(_moved(regions[lengths[0]], place, given[lengths[0]].size))
                    else:
                        kept.append(everything(_size(given, lengths)))
                inputs.append(Input(operator, tuple(kept)))
            found.append((_dimensions(draft.dimensions, place), tuple(inputs)))
        return found


def _size(dimensions: Sequence[Length], chosen: Sequence[int]) -> int:
    size = 1
    for one in chosen:
        size *= dimensions[one].size
    return size


def _places(dimensions: Sequence[Length]) -> list[int]:
    """Return the dimension in the document that each becomes: those of samples and of parameters
    stay, and of others the last share one dimension where there are too many."""
    others = [n for n, one in enumerate(dimensions) if one.kind not in ("sample", "parameter")]
    over = len(dimensions) - MOST_DIMENSIONS
    # what cannot be divided anyway goes first
    others.sort(key=lambda n: (dimensions[n].kind != "whole", -n))
    shared = set(others[: over + 1]) if over > 0 else set()
    found: list[int] = []
    count, common = 0, None
    for n in range(len(dimensions)):
        if n in shared:
            if common is None:
                common, count = count, count + 1
            found.append(common)
        else:
            found.append(count)
            count += 1
    return found


def _dimensions(dimensions: Sequence[Length], places: Sequence[int]) -> tuple[Dimension, ...]:
    if not dimensions:
        return (Dimension("all", 1, "whole"),)
    found = []
    for position in range(max(places) + 1):
        chosen = [n for n, place in enumerate(places) if place == position]
        one = dimensions[chosen[0]]
        kind: Kind = one.kind if len(chosen) == 1 else "whole"
        name = {"sample": "sample", "parameter": "units"}.get(kind, f"axis {position}")
        found.append(Dimension(name, _size(dimensions, chosen), kind))
    return tuple(found)


def _moved(region: Region, place: Sequence[int], size: int) -> Region:
    """By the dimensions in the document, of a dimension of `size` positions."""
    if region.of is None:
        return region
    if place.count(place[region.of]) > 1:
        return everything(size)
    return Region(region.extent, place[region.of], region.stride, region.start)


class Place(NamedTuple):
    """The place of a tensor: the operator that gives it out, and its axes in that operator's
    output."""

    operator: int
    view: View
    shape: Shape


@dataclass(eq=False)
class Whereabouts:
    """The places of the tensors of a model, while its ops are visited one after the other.
    `drafts`: the operators so far; `places`: of the tensors that know of the examples. `batch`: the
    samples of a step."""

    view: StepView
    roles: Roles
    batch: int
    drafts: Drafts = field(default_factory=Drafts)
    places: dict[Tensor, Place] = field(default_factory=dict)

    def read(self, node: int) -> list[Place]:
        """Return its inputs that depend on the examples."""
        return [self.places[t] for t in self.view.reads(node) if t in self.places]

    def learns(self, node: int) -> bool:
        """True if it reads a weight."""
        return any(before in self.roles.values for before, _ in self.view.reads(node))

    def inherited(self, place: Place, axis: int) -> list[Length]:
        return self.drafts.inherited(place.operator, place.view[axis])

    def statistic(self, place: Place) -> bool:
        """True if it was reduced over samples: a few numbers, which each part has separately, as
        replicas in data parallelism have."""
        dimensions = self.drafts[place.operator].dimensions
        there = {piece.dim for axis in place.view for piece in axis}
        return any(
            one.kind == "sample" and one.size > 1 and n not in there
            for n, one in enumerate(dimensions)
        )

    def whole(self, places: Sequence[Place]) -> list[Place]:
        """Those that are no statistics."""
        return [place for place in places if not self.statistic(place)]


def follow(lengths: Sequence[Length], operator: int, axis: Axis) -> bool:
    """Has dimensions read one more tensor, position by position; whether they are the same."""
    if tuple(one.size for one in lengths) != sizes(axis):
        return False
    for length, piece in zip(lengths, axis, strict=True):
        length.reads.append((operator, piece))
    return True
