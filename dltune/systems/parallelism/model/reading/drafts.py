"""Operators while they are put together from the ops of a step: their dimensions and their
inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dltune.systems.parallelism.model.reading.pieces import (
    Axis,
    Piece,
    View,
    everything,
    hull,
    sizes,
)
from dltune.systems.parallelism.schemas.operators import (
    MOST_DIMENSIONS,
    Dimension,
    Input,
    Kind,
    Region,
)


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
