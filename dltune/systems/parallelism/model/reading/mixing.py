"""Ops that mix positions, each the beginning of an operator: the dimensions of its output, and the
inputs that they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from dltune.analysis.keys import Key, layout, sliding
from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.reading.drafts import Length
from dltune.systems.parallelism.model.reading.step_view import Shape
from dltune.systems.parallelism.model.reading.whereabouts import Place, Whereabouts, follow


@dataclass(frozen=True)
class Beginning:
    """`axes`: the dimensions along each axis of the output."""

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
