"""Floating-point operations of convolutions and poolings, forward and backward.

A convolution multiplies and adds once for each image of the batch, each pair of a window and an
element in it (`windows.py`), and each weight at that place of the window: of a filter
[window..., a, b] there are a * b, whether it is plain (a: channels in), grouped (channels in of a
group) or depthwise (a: channels, b: multiplier). Both gradients do the same multiplications in
another order.

A gradient's key lacks a shape: that of the image or of the filter is the *value* of an input. The
bytes of its output leave few candidates, and the number is given only if all candidates agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from dltune.analysis.keys import Key, parse, real
from dltune.analysis.windows import Shape, Sliding, factors, layout, sliding
from dltune.schemas.graph import SIZES, TensorType
from dltune.schemas.profile import Op

_CONVOLUTION = re.compile(
    r"(?:Conv[23]D|DepthwiseConv2dNative)(BackpropInput|BackpropFilter)?(?:V2)?(WithBias)?"
)
_POOLING = re.compile(r"(Max|Avg)Pool(?:3D)?(Grad)?")

# channels of the image, shape of the filter
Filters = frozenset[tuple[int, Shape]]


def filters(ops: Iterable[Op]) -> Filters:
    """All filters in the keys of a job's forward convolutions."""
    found = set()
    for op in ops:
        key = parse(op)
        match = _CONVOLUTION.fullmatch(key.family) if key else None
        if key and match and not match[1] and len(key.inputs) > 1:
            image, filter_ = key.inputs[:2]
            if _is_image(image):
                channels = image.shape[layout(key, len(image.shape)).channels]
                found.add((channels, filter_.shape))
    return frozenset(found)


def convolution(key: Key, output_bytes: int, known: Filters) -> int | None:
    """Multiplications and additions; None when this is no convolution, or not all is known.

    `known`: filters of the job, which distinguish a gradient's 3x3 filter from a 9x1 filter.
    Without one that fits, a gradient to a filter is taken for one of a plain convolution, not of a
    grouped one.
    """
    match = _CONVOLUTION.fullmatch(key.family)
    if not match or len(key.inputs) < (3 if match[1] else 2):
        return None
    first, second = key.inputs[:2]
    # the tensor with a batch, at the place of the windows: the gradient, or the image itself
    data = key.inputs[2] if match[1] else first
    if not _is_image(data):
        return None
    slide = sliding(key, len(data.shape))
    if slide is None:
        return None
    if match[1] == "BackpropFilter":
        return _to_filter(key, slide, output_bytes, known, bias=bool(match[2]))
    if len(second.shape) != len(data.shape):
        return None
    along = slide.where.spatial(data.shape)
    if match[1] == "BackpropInput":
        spaces = _spaces(first, data, second, slide, output_bytes)
        return _agreed(_count(data, second.shape, space, along, slide) for space in spaces)
    windows = slide.windows(along, second.shape[:-2])
    if windows is None:
        return None
    bias = (output_elements(key) or 0) if match[2] else 0
    return _count(data, second.shape, along, windows, slide) + bias


def output_elements(key: Key) -> int | None:
    """Elements of a forward convolution's result."""
    image, filter_ = key.inputs[:2]
    slide = sliding(key, len(image.shape))
    windows = slide.windows(slide.where.spatial(image.shape), filter_.shape[:-2]) if slide else None
    if windows is None:
        return None
    depthwise = key.family.startswith("Depthwise")
    channels = math.prod(filter_.shape[-2:]) if depthwise else filter_.shape[-1]
    return image.shape[0] * math.prod(windows) * channels


def pooling(key: Key, output_bytes: int) -> int | None:
    """A comparison or addition for each element in each window; of a mean one division more for
    each window. A maximum's gradient adds each of its elements to one place."""
    match = _POOLING.fullmatch(key.family)
    if not match or not key.inputs:
        return None
    kind, backward = match[1], match[2]
    if kind == "Max" and backward:
        return key.inputs[2].elements if len(key.inputs) > 2 and real(key.inputs[2]) else None
    data = key.inputs[-1] if backward else key.inputs[0]
    if not _is_image(data):
        return None
    slide, size = sliding(key, len(data.shape)), key.numbers("ksize")
    if slide is None or len(size) != len(data.shape):
        return None
    where = slide.where
    if (size[0], size[where.channels]) != (1, 1):
        return None
    planes = data.shape[0] * data.shape[where.channels]
    window, space = where.spatial(size), where.spatial(data.shape)
    windows = space if backward else slide.windows(space, window)
    if windows is None:
        return None
    spaces = [space]
    if backward:
        spaces = list(slide.images(windows, window, _area(output_bytes, data, planes) or 0))
    pairs = _agreed(slide.pairs(space, window, windows) for space in spaces)
    if pairs is None:
        return None
    return planes * (pairs + (math.prod(windows) if kind == "Avg" else 0))


def _is_image(tensor: TensorType) -> bool:
    return real(tensor) and len(tensor.shape) in (4, 5)


def _count(data: TensorType, filter_: Shape, space: Shape, windows: Shape, slide: Sliding) -> int:
    """A multiplication and an addition each."""
    pairs = slide.pairs(space, filter_[:-2], windows)
    return 2 * data.shape[0] * pairs * filter_[-2] * filter_[-1]


def _to_filter(
    key: Key, slide: Sliding, output_bytes: int, known: Filters, *, bias: bool
) -> int | None:
    image, given, gradient = key.inputs[:3]
    where = slide.where
    if len(image.shape) != len(gradient.shape):
        return None
    elements, rest = divmod(output_bytes, SIZES[gradient.dtype])
    if rest:
        return None
    if bias:  # its gradient is in the bytes of the outputs too
        elements -= gradient.shape[where.channels]
    space, windows = where.spatial(image.shape), where.spatial(gradient.shape)
    if len(given.shape) == len(gradient.shape):
        shapes = [given.shape]  # the first version of the op takes the filter itself
    else:
        shapes = _filters(key, where.channels, elements, known)
    found = _agreed(
        _count(image, shape, space, windows, slide)
        for shape in shapes
        if slide.windows(space, shape[:-2]) == windows
    )
    return None if found is None else found + (gradient.elements if bias else 0)


def _filters(key: Key, channels: int, elements: int, known: Filters) -> list[Shape]:
    """Shapes that a filter of so many elements between image and gradient can have; `channels`: the
    dimension of both that counts them."""
    image, _, gradient = key.inputs[:3]
    depthwise = key.family.startswith("Depthwise")
    into, out = image.shape[channels], gradient.shape[channels]
    last = (into, out // max(1, into)) if depthwise else (into, out)
    fitting = [
        shape
        for given, shape in known
        if given == into
        and len(shape) == len(image.shape)
        and math.prod(shape) == elements
        and (shape[-2:] == last if depthwise else shape[-1] == out)
    ]
    taps, rest = divmod(elements, max(1, math.prod(last)))
    if fitting or rest or taps < 1:
        return fitting
    return [(*window, *last) for window in factors(taps, len(image.shape) - 2)]


def _spaces(
    given: TensorType, gradient: TensorType, filter_: TensorType, slide: Sliding, output_bytes: int
) -> Iterator[Shape]:
    """Spatial sizes that the image of a gradient to it can have."""
    where = slide.where
    if len(given.shape) == len(gradient.shape):
        yield where.spatial(given.shape)  # one version of the op takes the image itself
        return
    windows = where.spatial(gradient.shape)
    out = gradient.shape[where.channels]
    # a grouped filter has the channels of a group only
    for groups in range(1, out + 1):
        if out % groups == 0:
            planes = gradient.shape[0] * filter_.shape[-2] * groups
            if area := _area(output_bytes, gradient, planes):
                yield from slide.images(windows, filter_.shape[:-2], area)


def _area(output_bytes: int, like: TensorType, planes: int) -> int | None:
    """Elements of a plane of an output of `like`'s dtype; None when it does not divide evenly."""
    area, rest = divmod(output_bytes, max(1, SIZES[like.dtype] * planes))
    return None if rest or not planes else area


def _agreed(counts: Iterable[int]) -> int | None:
    found = set(counts)
    return found.pop() if len(found) == 1 else None
