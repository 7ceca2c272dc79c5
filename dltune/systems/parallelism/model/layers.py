"""The ops of a model put together into operators, each with the dimensions that can divide it.

An op that mixes positions (`beginning`) begins an operator, as do a reduction except over samples,
and an op that joins two operators. Ops that work position by position, and ops that only move or
normalise over the samples, go with the operator that they read. An op that is not understood begins
an operator that can be divided by samples at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from dltune.analysis.flops import ELEMENTWISE, REDUCTIONS
from dltune.analysis.keys import VIEWS, Key, broadcast, layout, sliding
from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.drafts import (
    Length,
    Place,
    View,
    Whereabouts,
    follow,
    permuted,
    reduced,
    reshaped,
    sizes,
)
from dltune.systems.parallelism.model.roles import Roles, Shape, StepView


@dataclass(frozen=True)
class Beginning:
    """The beginning of an operator: an op that mixes positions, with the dimensions of its output
    and the inputs that they read. `axes`: the dimensions along each axis of the output."""

    axes: Sequence[Sequence[Length]]
    shape: Shape


def beginning(found: Whereabouts, node: int, key: Key) -> Beginning | None:
    """None for an op that is not understood."""
    rule = _RULES.get(found.view.families[node])
    return None if rule is None else rule(found, node, key)


def opaque(found: Whereabouts, node: int) -> Beginning:
    """Return an operator that is not understood. It can be divided by samples at most: where one
    axis of all its inputs and outputs has their number. Raises UsageError where several have."""
    shape = found.view.shapes.get((node, 0), ())
    axes = [[Length(size, "whole")] if size > 1 else [] for size in shape]
    read = found.whole(found.read(node))
    if found.batch == 1 or found.batch not in shape or not any(map(_samples, repeat(found), read)):
        return Beginning(axes, shape)
    shapes = [shape, *(place.shape for place in read)]
    if any(one.count(found.batch) != 1 for one in shapes) or not all(
        map(_samples, repeat(found), read)
    ):
        raise UsageError(
            f"cannot find the batch dimension of {found.view.nodes[node].name!r}: the shapes are "
            f"{' and '.join(str(list(one)) for one in shapes)}, the batch size is {found.batch}",
            remedy="profile the job with a batch size that differs from every other size in the "
            "model",
        )
    reads = [(place.operator, place.view[place.shape.index(found.batch)][0]) for place in read]
    axes[shape.index(found.batch)] = [Length(found.batch, "sample", reads)]
    return Beginning(axes, shape)


def _samples(found: Whereabouts, place: Place) -> bool:
    """True if one of its axes counts the samples, and nothing else."""
    return any(
        len(axis) == 1
        and axis[0].size == found.batch
        and found.drafts.kind(place.operator, axis[0]) == "sample"
        for axis in place.view
    )


def _rows(found: Whereabouts, node: int, _: Key) -> Beginning | None:
    """Softmax: the last axis together."""
    place = found.read(node)[0]
    axes = [found.inherited(place, axis) for axis in range(len(place.view))]
    return Beginning(
        [*axes[:-1], [Length(one.size, "whole") for one in axes[-1]]],
        place.shape,
    )


def _entropy(found: Whereabouts, node: int, _: Key) -> Beginning | None:
    """A loss for each row."""
    logits, *labels = found.read(node)
    rank = len(logits.view) - 1
    axes = [found.inherited(logits, axis) for axis in range(rank)]
    for place in labels:
        for lengths, axis in zip(axes, place.view, strict=False):
            follow(lengths, place.operator, axis)
    return Beginning(axes, logits.shape[:-1])


def _window(found: Whereabouts, node: int, key: Key) -> Beginning | None:
    """Convolutions and poolings."""
    place = found.read(node)[0]
    slide = sliding(key, len(place.shape))
    pool = "Pool" in found.view.families[node]
    # the filter of a convolution is a weight
    if slide is None or (not pool and (len(key.inputs) < 2 or not _by_weight(found, node))):
        return None
    where = slide.where
    taps = where.spatial(key.numbers("ksize")) if pool else key.inputs[1].shape[:-2]
    space = where.spatial(place.shape)
    windows = slide.windows(space, taps)
    if windows is None:
        return None
    axes: list[list[Length]] = [[] for _ in place.shape]
    shape = list(place.shape)
    axes[0] = found.inherited(place, 0)
    for n, axis in enumerate(where.space):
        reach, stride = slide.reach(n, taps[n]), slide.strides[n]
        missing = max((windows[n] - 1) * stride + reach - space[n], 0)
        before = missing // 2 if slide.padding is None else slide.padding[n][0]
        shape[axis] = windows[n]
        pieces = place.view[axis]
        if windows[n] > 1 and len(pieces) == 1:
            piece = pieces[0].windowed(windows[n], stride, before, reach)
            kind = found.drafts.kind(place.operator, piece)
            axes[axis] = [Length(windows[n], kind, [(place.operator, piece)])]
        elif windows[n] > 1:
            axes[axis] = [Length(windows[n], "attribute")]
    axes[where.channels] = found.inherited(place, where.channels)
    if not pool:
        axes[where.channels] = [_channels(found, node, key, axes[where.channels])]
        shape[where.channels] = axes[where.channels][0].size
    _added(found, node, axes)
    return Beginning(axes, tuple(shape))


def _transposed(found: Whereabouts, node: int, key: Key) -> Beginning | None:
    """A transposed convolution; what of the image a position needs, no region says."""
    shape = found.view.shapes.get((node, 0))
    data = found.places.get(found.view.reads(node)[2])
    if shape is None or data is None or not _by_weight(found, node):
        return None
    axes = [[Length(size, "whole")] if size > 1 else [] for size in shape]
    channels = layout(key, len(shape)).channels
    axes[channels] = [Length(shape[channels], "parameter")]
    axes[0] = found.inherited(data, 0)
    return Beginning(axes, shape)


def _by_weight(found: Whereabouts, node: int) -> bool:
    return found.view.reads(node)[1] not in found.places


def _channels(found: Whereabouts, node: int, key: Key, given: Sequence[Length]) -> Length:
    *_, depth, channels = key.inputs[1].shape
    if not found.view.families[node].startswith("Depthwise"):
        return Length(channels, "parameter")
    # with a multiplier a channel's results are adjacent, which no region says
    reads = given[0].reads if channels == 1 and len(given) == 1 else []
    return Length(depth * channels, "parameter", reads)


def _product(found: Whereabouts, node: int, key: Key) -> Beginning | None:
    """MatMul, BatchMatMul and Einsum, by the letters of their axes."""
    letters = _letters(found.view.families[node], key)
    if letters is None:
        return None
    *words, result = letters
    axes, shape = [], []
    for letter in result:
        lengths: list[Length] = []
        size = 1
        for tensor, word, operand in zip(found.view.reads(node), words, key.inputs, strict=False):
            if letter in word:
                at = word.index(letter)
                size = max(size, operand.shape[at])
                place = found.places.get(tensor)
                if place and not (lengths and follow(lengths, place.operator, place.view[at])):
                    lengths = lengths or found.inherited(place, at)
        if not lengths and size > 1:
            lengths = [Length(size, "parameter" if found.learns(node) else "whole")]
        axes.append(lengths)
        shape.append(size)
    _added(found, node, axes)
    return Beginning(axes, tuple(shape))


def _letters(family: str, key: Key) -> tuple[str, str, str] | None:
    """For each axis of both operands and of the result."""
    if len(key.inputs) < 2:
        return None
    a, b = (len(one.shape) for one in key.inputs[:2])
    if family == "Einsum":
        left, _, right = key.attributes.get("equation", "").replace(" ", "").partition("->")
        one, _, other = left.partition(",")
        good = "." not in left and (len(one), len(other)) == (a, b)
        return (one, other, right) if good else None
    if min(a, b) < 2:
        return None
    batch = "abcdefgh"[: max(a, b) - 2]
    rows = "km" if key.true("transpose_a", "adj_x") else "mk"
    columns = "nk" if key.true("transpose_b", "adj_y") else "kn"
    first, second = batch[len(batch) - a + 2 :], batch[len(batch) - b + 2 :]
    return first + rows, second + columns, f"{batch}mn"


def _added(found: Whereabouts, node: int, axes: Sequence[Sequence[Length]]) -> None:
    """Add the tensors that a fused kernel adds position by position."""
    for tensor in found.view.reads(node)[2:]:
        if place := found.places.get(tensor):
            for lengths, axis in zip(reversed(axes), reversed(place.view), strict=False):
                follow(lengths, place.operator, axis)


def _gather(found: Whereabouts, node: int, _: Key) -> Beginning | None:
    """Rows of a weight."""
    reads = found.view.reads(node)
    place = found.places.get(reads[1]) if len(reads) > 1 else None
    shape = found.view.shapes.get((node, 0))
    weights = found.roles.values | found.roles.weights.keys()
    if place is None or shape is None or reads[0][0] not in weights:
        return None
    rank = len(place.shape)
    if shape[:rank] != place.shape:
        return None
    axes = [found.inherited(place, axis) for axis in range(rank)]
    return Beginning([*axes, *([Length(size, "parameter")] for size in shape[rank:])], shape)


def _concat(found: Whereabouts, node: int, key: Key) -> Beginning | None:
    """Return the operator of inputs side by side along the one axis in which they add up."""
    read = found.read(node)
    shape = found.view.shapes.get((node, 0))
    if shape is None or len(read) < len(key.inputs) - 1:
        return None
    axes = [
        n
        for n in range(len(shape))
        if sum(place.shape[n] for place in read) == shape[n]
        and all(_without(place.shape, n) == _without(shape, n) for place in read)
    ]
    if len(axes) != 1 or any(len(place.view[axes[0]]) > 1 for place in read):
        return None
    found_axes = []
    for n, size in enumerate(shape):
        if n == axes[0]:
            found_axes.append([_side_by_side(read, n, size)])
            continue
        lengths = found.inherited(read[0], n)
        for place in read[1:]:
            follow(lengths, place.operator, place.view[n])
        found_axes.append(lengths)
    return Beginning(found_axes, shape)


def _side_by_side(read: Sequence[Place], axis: int, size: int) -> Length:
    joined, offset = Length(size, "attribute"), 0
    for place in read:
        for piece in place.view[axis]:
            joined.reads.append((place.operator, piece.windowed(size, 1, offset, 1)))
        offset += place.shape[axis]
    return joined


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


_Rule = Callable[[Whereabouts, int, Key], Beginning | None]
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _window),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInput"), _transposed),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _window),
    **dict.fromkeys(("MatMul", "BatchMatMul", "Einsum"), _product),
    **dict.fromkeys(("Gather", "GatherV2", "ResourceGather"), _gather),
    **dict.fromkeys(("Concat", "ConcatV2"), _concat),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _rows),
    "SparseSoftmaxCrossEntropyWithLogits": _entropy,
    "SoftmaxCrossEntropyWithLogits": _entropy,
}


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
