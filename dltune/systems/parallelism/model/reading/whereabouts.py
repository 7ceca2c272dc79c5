"""The places of the tensors of a model, while its ops are visited one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dltune.systems.parallelism.model.reading.drafts import Drafts, Length
from dltune.systems.parallelism.model.reading.pieces import Axis, View, sizes
from dltune.systems.parallelism.model.reading.roles import Roles
from dltune.systems.parallelism.model.reading.step_view import Shape, StepView, Tensor


class Place(NamedTuple):
    """The place of a tensor: the operator that gives it out, and its axes in that operator's
    output."""

    operator: int
    view: View
    shape: Shape


@dataclass(eq=False)
class Whereabouts:
    """`drafts`: the operators so far; `places`: of the tensors that know of the examples. `batch`:
    the samples of a step."""

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
