"""Inputs whose values are shapes or axes, made up from an op's key and the bytes of its output.

A key tells that Conv2DBackpropFilter had an int32[4], not which; the size of what came out, and the
other inputs, say the rest. Where several answers fit (1x7 and 7x1 filters) they do the same work
and the first is taken; where none does, or where the work depends on it, the op is left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from dltune.profile.standalone.task import Standalone
from dltune.schemas.graph import SIZES, OpKey

Value = tuple[int, ...] | tuple[tuple[int, ...], ...] | int


def value(kind: str, argument: str, op: OpKey, original: OpKey, wanted: Standalone) -> Value:
    """What `op` (of plain type `kind`) gets for its input named `argument`.

    `op` and `original` are the two keys of `wanted`, whose output's bytes are those of `original`.
    Raises ValueError when they do not tell.
    """
    maker = _MAKERS.get((kind, argument))
    is_nhwc = op.attributes.get("data_format", "NHWC") == "NHWC"
    made = maker(op, original, wanted) if maker and is_nhwc else None
    if made is None:
        raise ValueError(f"input {argument} is a value that the op's key does not contain")
    return made


def _input_sizes(op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """The image that a convolution's gradient is for: [examples, height, width, channels]."""
    filters = original.inputs[1].shape
    return _image(op, original, wanted, 2, filters[2], filters[:2])


def _filter_sizes(op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """The filter: [height, width, channels in, channels out]."""
    image, gradient = original.inputs[0], original.inputs[2]
    before, after = image.shape[3], gradient.shape[3]
    bias = after if op.type.endswith("WithBias") else 0
    elements = _quotient(wanted.output_bytes, SIZES[image.dtype])
    depthwise = "Depthwise" in op.type
    area = _quotient(elements - bias, after if depthwise else before * after)
    for size in _rectangles(area):
        if _out(op, image.shape[1:3], size) == gradient.shape[1:3]:
            return (*size, before, after // before if depthwise else after)
    return None


def _pooled_sizes(op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """The image that an average pooling's gradient is for."""
    return _image(op, original, wanted, 1, original.inputs[1].shape[3], op.integers("ksize")[1:3])


def _axes(_op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """The axes that a reduction is over."""
    tensor, axes = original.inputs
    reduced = _quotient(tensor.bytes, wanted.output_bytes)
    count = axes.elements
    for found in itertools.combinations(range(len(tensor.shape)), count):
        if reduced and math.prod(tensor.shape[axis] for axis in found) == reduced:
            return found if axes.shape else found[0]
    return None


def _multiples(_: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """How often Tile repeats each dimension: those of one element, the examples first."""
    shape = original.inputs[0].shape
    times = _quotient(wanted.output_bytes, original.inputs[0].bytes)
    found = [1] * len(shape)
    free = [axis for axis, size in enumerate(shape) if size == 1]
    if free and free[0] == 0 and times and times % wanted.measured == 0:
        found[0] = wanted.batch
        times //= wanted.measured
        free = free[1:]
    side = math.isqrt(times)
    if times == 1:
        return tuple(found)
    if len(free) == 1:
        found[free[0]] = times
    elif len(free) >= 2 and side * side == times:
        found[free[0]] = found[free[1]] = side
    else:
        return None
    return tuple(found)


def _concat_axis(op: OpKey, _original: OpKey, _: Standalone) -> Value:
    """The one axis along which the tensors differ, the last where they do not."""
    shapes = [tensor.shape for tensor in op.inputs[:-1]]
    differing = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len({*sizes}) > 1]
    return differing[0] if differing else len(shapes[0]) - 1


def _paddings(_op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """The same border on each side of an image's height and width."""
    shape = original.inputs[0].shape
    if len(shape) != 4:
        return None
    area = _quotient(wanted.output_bytes, SIZES[original.inputs[0].dtype] * shape[0] * shape[3])
    for border in range(max(shape[1:3])):
        if (shape[1] + 2 * border) * (shape[2] + 2 * border) == area:
            return ((0, 0), (border, border), (border, border), (0, 0))
    return None


_MAKERS: Mapping[tuple[str, str], Callable[[OpKey, OpKey, Standalone], Value | None]] = {
    ("Conv2DBackpropInput", "input_sizes"): _input_sizes,
    ("DepthwiseConv2dNativeBackpropInput", "input_sizes"): _input_sizes,
    ("Conv2DBackpropFilter", "filter_sizes"): _filter_sizes,
    ("DepthwiseConv2dNativeBackpropFilter", "filter_sizes"): _filter_sizes,
    ("AvgPoolGrad", "orig_input_shape"): _pooled_sizes,
    ("ConcatV2", "axis"): _concat_axis,
    ("Pad", "paddings"): _paddings,
    ("Tile", "multiples"): _multiples,
    **{(kind, "reduction_indices"): _axes for kind in ("Sum", "Mean", "Max", "Min", "Prod")},
}


def _image(
    op: OpKey,
    original: OpKey,
    wanted: Standalone,
    place: int,
    channels: int,
    window: tuple[int, ...],
) -> Value | None:
    """The image over which `window` gives the gradient that is the input at `place`."""
    gradient = original.inputs[place]
    area = _quotient(wanted.output_bytes, SIZES[gradient.dtype] * gradient.shape[0] * channels)
    for size in _rectangles(area):
        if _out(op, size, window) == gradient.shape[1:3]:
            return (op.inputs[place].shape[0], *size, channels)
    return None


def _quotient(a: int, b: int) -> int:
    """a / b, 0 where that is no whole number."""
    return a // b if b > 0 and a % b == 0 else 0


def _rectangles(area: int) -> Iterator[tuple[int, int]]:
    """Height and width of that area, squares first, then the flattest last."""
    pairs = [(a, area // a) for a in range(1, math.isqrt(area) + 1) if area % a == 0]
    for a, b in reversed(pairs):
        yield a, b
        if a != b:
            yield b, a


def _out(op: OpKey, image: tuple[int, ...], window: tuple[int, ...]) -> tuple[int, ...] | None:
    """Height and width of what a window gives that moves over an image."""
    strides = op.integers("strides")[1:3]
    dilations = op.integers("dilations")[1:3] or (1, 1)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(window, dilations, strict=True)]
    padding = op.attributes.get("padding")
    if padding == "SAME":
        return tuple(-(-size // step) for size, step in zip(image, strides, strict=True))
    if padding == "VALID":
        sizes = zip(image, reach, strides, strict=True)
        return tuple(-(-(size - over + 1) // step) for size, over, step in sizes)
    return None
