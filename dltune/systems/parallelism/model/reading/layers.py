"""The ops of a model put together into operators, each with the dimensions that can divide it.

An op that mixes positions (`mixing.py`) begins an operator, as do a reduction except over samples,
and an op that joins two operators. Ops that work position by position, and ops that only move or
normalise over the samples, go with the operator that they read. An op that is not understood begins
an operator that can be divided by samples at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dltune.analysis.flops import ELEMENTWISE, REDUCTIONS
from dltune.analysis.keys import VIEWS, Key, broadcast
from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.reading.drafts import Length
from dltune.systems.parallelism.model.reading.mixing import Beginning, beginning, opaque
from dltune.systems.parallelism.model.reading.pieces import (
    View,
    permuted,
    reduced,
    reshaped,
    sizes,
)
from dltune.systems.parallelism.model.reading.roles import Roles
from dltune.systems.parallelism.model.reading.step_view import Shape, StepView
from dltune.systems.parallelism.model.reading.whereabouts import Place, Whereabouts, follow

_RESHAPES = ("Reshape", "Squeeze", "ExpandDims")
_CUTS = ("Pad", "PadV2", "Slice", "StridedSlice", "Split", "SplitV", "Unpack")
_MOVES = (*_RESHAPES, *_CUTS, "Transpose")
_NORMS = ("FusedBatchNorm", "FusedBatchNormEx")
_EACH = frozenset(
    {
        *(ELEMENTWISE.keys() | VIEWS).difference(_RESHAPES),
        *("AccumulateN", "AddN", "Cast", "CheckNumerics", "LogicalAnd", "LogicalNot", "LogicalOr"),
        *("OnesLike", "UnaryOpsComposition", "ZerosLike", *_NORMS),
    }
)


class Layers:
    """`operator`: of each op that computes the model, or depends on its results, the number of the
    operator that it belongs to."""

    def __init__(self, view: StepView, roles: Roles) -> None:
        """Raises UsageError when the inputs of a step do not have its samples first."""
        self.view, self.roles = view, roles
        self.found = Whereabouts(view, roles, _batch(view, roles))
        self.drafts = self.found.drafts
        self.operator: dict[int, int] = {}
        for node in view.order:
            if node in roles.model and node in roles.data:
                self._examples(node)
            elif node in roles.model and node in roles.informed:
                self._add(node)
        self._rest()

    def _examples(self, node: int) -> None:
        for slot in range(max(1, len(self.view.nodes[node].outputs))):
            shape = self.view.shapes.get((node, slot))
            if shape is not None:
                axes = [
                    [Length(size, "attribute" if n else "sample")] for n, size in enumerate(shape)
                ]
                number, view = self.drafts.begin(node, axes, (), data=True)
                self.found.places[node, slot] = Place(number, view, shape)
                if self.operator.setdefault(node, number) != number:
                    self.drafts[number].nodes.clear()  # its time is that of the first

    def _add(self, node: int) -> None:
        key = self.view.keys[node]
        begun: Beginning | None = None
        if key is not None and self._known(node, key):
            family = self.view.families[node]
            if family in _EACH:
                begun = self._each(node, family, key)
            elif family in _MOVES:
                self._move(node, family)
            elif family in REDUCTIONS:
                begun = self._reduce(node, key)
            else:
                begun = beginning(self.found, node, key)
            if begun is None and node in self.operator:
                return
        self._begin(node, begun or opaque(self.found, node))

    def _known(self, node: int, key: Key) -> bool:
        """True if the axes of all its inputs are understood."""
        places = [self.found.places.get(t) for t in self.view.reads(node)]
        return len(places) == len(key.inputs) and all(
            place is None or len(place.view) == len(one.shape)
            for place, one in zip(places, key.inputs, strict=True)
        )

    def _each(self, node: int, family: str, key: Key) -> Beginning | None:
        """Position by position: with the last operator that it reads, if that reads the others
        already."""
        read = self.found.read(node)[: 1 if family in _NORMS else None]
        shape = self.view.shapes.get((node, 0)) or broadcast(*(one.shape for one in key.inputs))
        if shape is None or family in _NORMS:
            shape = read[0].shape
        full = self.found.whole(read)
        number = max(place.operator for place in full or read)
        own = [_aligned(p.view, shape) for p in full or read if p.operator == number]
        mixed: View | None = tuple(next(filter(None, axes), ()) for axes in zip(*own, strict=True))
        if full:
            late = max(place.operator for place in read) > number
            if late or (self.drafts[number].data and self.found.learns(node)):
                return self._joined(full, shape)
            if any(a and a != b for view in own for a, b in zip(view, mixed or (), strict=True)):
                return self._joined(full, shape)
            for place in full:
                if place.operator == number or mixed is None:
                    continue
                known = place.operator in self.drafts[number].inputs
                theirs = _aligned(place.view, shape)
                mixed = self.drafts.align(number, mixed, place.operator, theirs) if known else None
            if mixed is None:
                return self._joined(full, shape)
            mixed = self.drafts.widened(number, mixed, shape)
        self._keep(node, number, mixed or (), shape)
        return None

    def _joined(self, read: Sequence[Place], shape: Shape) -> Beginning:
        """Return an operator of several inputs, position by position."""
        axes: list[list[Length]] = []
        for n in range(len(shape)):
            views = [(place.operator, _aligned(place.view, shape)[n]) for place in read]
            widest = max((axis for _, axis in views), key=len)
            lengths: list[Length] = []
            for operator, axis in views:
                if not lengths and sizes(axis) == sizes(widest):
                    lengths = self.drafts.inherited(operator, axis)
                elif lengths:
                    follow(lengths, operator, axis)
            axes.append(lengths or ([Length(shape[n], "whole")] if shape[n] > 1 else []))
        return Beginning(axes, shape)

    def _move(self, node: int, family: str) -> None:
        """The same numbers elsewhere; does nothing where that is not understood."""
        read = self.found.read(node)
        outputs = range(max(1, len(self.view.nodes[node].outputs)))
        shapes = [self.view.shapes.get((node, slot)) for slot in outputs]
        if len(read) != 1:
            return
        moved: list[tuple[View, Shape]] = []
        for slot, wanted in enumerate(shapes):
            if wanted is None:
                moved.append(((), ()))  # nothing reads it
                continue
            view: View | None
            if family in _RESHAPES:
                view = reshaped(read[0].view, wanted)
            elif family == "Transpose":
                view = permuted(read[0].view, read[0].shape, wanted)
            else:
                part = slot if family == "Split" else None
                view = _cut(read[0].view, read[0].shape, wanted, part)
            if view is None:
                return
            moved.append((view, wanted))
        self._keep(node, read[0].operator, *moved[0])
        for slot, (view, wanted) in enumerate(moved):
            self.found.places[node, slot] = Place(read[0].operator, view, wanted)

    def _reduce(self, node: int, key: Key) -> Beginning | None:
        """Reduce. Statistics over samples, and values that no part has except whole, go with the
        operator that they are of. Else a new operator."""
        place = self.found.places.get(self.view.reads(node)[0])
        wanted = self.view.shapes.get((node, 0))
        if place is None or wanted is None:
            return None
        keep = key.true("keep_dims")
        count = math.prod(key.inputs[1].shape) if len(key.inputs) > 1 else len(place.shape)
        axes = reduced(place.shape, wanted, count, keep=keep)
        if axes is None:
            return None
        dimensions = self.drafts[place.operator].dimensions
        kinds = {dimensions[piece.dim].kind for n in axes for piece in place.view[n]}
        left = [
            () if n in axes else axis for n, axis in enumerate(place.view) if keep or n not in axes
        ]
        if not kinds - {"whole"} or "sample" in kinds:
            self._keep(node, place.operator, tuple(left), wanted)
            return None
        return Beginning([self.drafts.inherited(place.operator, axis) for axis in left], wanted)

    def _begin(self, node: int, begun: Beginning) -> None:
        read = self.found.read(node)
        operators = dict.fromkeys(p.operator for p in self.found.whole(read) or read)
        number, view = self.drafts.begin(node, begun.axes, list(operators), data=False)
        self._place(node, number, view, begun.shape)

    def _keep(self, node: int, number: int, view: View, shape: Shape) -> None:
        self.drafts[number].nodes.append(node)
        self._place(node, number, view, shape)

    def _place(self, node: int, number: int, view: View, shape: Shape) -> None:
        """Note its outputs. Further outputs are only understood if they have the first output's
        shape or are statistics."""
        self.operator[node] = number
        self.found.places[node, 0] = Place(number, view, shape)
        for slot in range(1, len(self.view.nodes[node].outputs)):
            known = self.view.shapes.get((node, slot), ())
            own = view if known == shape else ((),) * len(known)
            if known and len(known) == 1 and known == shape[-1:]:
                own = view[-1:]
            self.found.places[node, slot] = Place(number, own, known)

    def _rest(self) -> None:
        """Ops of metrics and statistics, which no gradient needs, go with the last operator that
        they read; ops that know of no examples, with the first that reads them."""
        view, roles = self.view, self.roles
        behind = roles.gradients | roles.optimizer
        for node in view.order:
            if node in roles.informed and node not in self.operator and node not in behind:
                self._take(node, max, view.needs[node])
        for node in reversed(view.order):
            if node not in roles.informed and node not in behind:
                self._take(node, min, view.readers[node])

    def _take(self, node: int, which: Callable[[list[int]], int], beside: Sequence[int]) -> None:
        if numbers := [self.operator[one] for one in beside if one in self.operator]:
            self.operator[node] = which(numbers)
            self.drafts[self.operator[node]].nodes.append(node)


def _batch(view: StepView, roles: Roles) -> int:
    """The samples of a step: the first size of all that hands it examples."""
    first = {shape[0] for (node, _), shape in view.shapes.items() if node in roles.data and shape}
    if len(first) != 1:
        raise UsageError(
            f"cannot find the batch size of step {view.title}: the first dimensions of its inputs "
            f"are {sorted(first)}",
            remedy="profile a step whose inputs all begin with the batch dimension",
        )
    return first.pop()


def _aligned(view: View, shape: Shape) -> View:
    return ((),) * (len(shape) - len(view)) + view


def _cut(view: View, given: Shape, wanted: Shape, part: int | None) -> View | None:
    """Return part of a tensor, or more than it. Its beginning is not in a key, unless it is one of
    equal parts: elsewhere each position can be any of those that it can be."""
    if len(wanted) < len(given):
        gone = reduced(given, wanted, len(given) - len(wanted), keep=False)
        return None if gone is None else tuple(a for n, a in enumerate(view) if n not in gone)
    found = []
    for axis, size, now in zip(view, given, wanted, strict=True):
        if now == size:
            found.append(axis)
        elif len(axis) != 1:
            return None
        elif part is not None:
            found.append((axis[0].windowed(now, 1, -part * now, 1),) if now > 1 else ())
        else:
            before = max(0, now - size)
            found.append((axis[0].windowed(now, 1, before, abs(now - size) + 1),))
    return tuple(found)
