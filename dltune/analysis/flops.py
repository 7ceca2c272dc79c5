"""Floating-point operations of an op, and the bytes that it must at least move.

Conventions: a multiplication, an addition, a division, a comparison, a selection and a function
(exp, tanh, sqrt, ...) are one operation each, as written in the op's definition; a kernel can do
more or fewer. Work once a row or channel, in addition to work on each of its elements, is left out.
Moving and converting are none, nor is arithmetic on integers.

`operations` and `moved` take any op. They hand the ops of PyTorch to `aten_flops`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from dltune.analysis import aten_flops
from dltune.analysis.keys import (
    VIEWS,
    Key,
    Shape,
    Sliding,
    broadcast,
    factors,
    layout,
    parse,
    real,
    sized,
    sliding,
)
from dltune.schemas.graph import NAMESPACE, SIZES, TensorType
from dltune.schemas.profile import Op

# Convolutions and poolings, forward and backward

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
    """Return multiplications and additions; None when this is no convolution, or not all is known.

    A convolution multiplies and adds once for each image of the batch, each pair of a window and an
    element in it (`keys.Sliding`), and each weight at that place of the window: of a filter
    [window..., a, b] there are a * b, whether it is plain (a: channels in), grouped (channels in of
    a group) or depthwise (a: channels, b: multiplier). Both gradients do the same multiplications
    in another order.

    A gradient's key lacks a shape: that of the image or of the filter is the *value* of an input.
    The bytes of its output leave few candidates, and the number is given only if all candidates
    agree.

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


# Operations and bytes of all ops

# operations for each element of the result, which has the inputs' broadcast shape
ELEMENTWISE: Mapping[str, int] = {
    # one input
    **dict.fromkeys(
        (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh"),
            *("Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "Inv", "Lgamma", "Log", "Log1p"),
            *("LeakyRelu", "Neg", "Reciprocal", "Relu", "Relu6", "Rint", "Round", "Rsqrt"),
            *("Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Square"),
            *("Tan", "Tanh", "IsFinite", "IsInf", "IsNan", "Ndtri", "Digamma", "Erfinv"),
        ),
        1,
    ),
    "Swish": 2,
    # two
    **dict.fromkeys(
        (
            *("Add", "Atan2", "BiasAdd", "Div", "DivNoNan", "Equal", "FloorDiv", "FloorMod"),
            *("Greater", "GreaterEqual", "Less", "LessEqual", "Maximum", "Minimum", "Mod", "Mul"),
            *("MulNoNan", "NotEqual", "Pow", "RealDiv", "Sub", "TruncateDiv", "Xdivy", "Xlogy"),
        ),
        1,
    ),
    "SquaredDifference": 2,
    # (dy, x): a selection, or the derivative's formula
    **dict.fromkeys(("EluGrad", "LeakyReluGrad", "ReluGrad", "Relu6Grad"), 1),
    "ReciprocalGrad": 3,  # -dy * y * y
    "InvGrad": 3,
    "RsqrtGrad": 4,  # dy * -0.5 * y * y * y
    "SigmoidGrad": 3,  # dy * y * (1 - y)
    "SoftplusGrad": 3,  # dy / (exp(-x) + 1)
    "SoftsignGrad": 4,  # dy / (1 + |x|)^2
    "SqrtGrad": 2,  # dy * 0.5 / y
    "TanhGrad": 3,  # dy * (1 - y * y)
    # (condition, x, y)
    "Select": 1,
    "ClipByValue": 2,
}

# operations for each element of the first input
PER_INPUT: Mapping[str, int] = {
    **dict.fromkeys(("All", "Any", "ArgMax", "ArgMin", "BiasAddGrad", "Cumprod", "Cumsum"), 1),
    **dict.fromkeys(("EuclideanNorm", "L2Loss"), 2),
    **dict.fromkeys(("Max", "Mean", "Min", "Prod", "Sum", "SegmentSum", "UnsortedSegmentSum"), 1),
    # maximum, subtraction, exp, sum, division (of a logarithm: subtraction)
    "Softmax": 5,
    "LogSoftmax": 5,
    "SparseSoftmaxCrossEntropyWithLogits": 5,
    # and -label * log(p), summed; p - label
    "SoftmaxCrossEntropyWithLogits": 8,
}

# operations for each element of the gradient in an optimiser's update: the gradient's position,
# and how many variables of its size are read and written
UPDATES: Mapping[str, tuple[int, int]] = {
    "AssignAddVariableOp": (1, 1),
    "AssignSubVariableOp": (1, 1),
    "ResourceApplyGradientDescent": (2, 1),
    "ResourceApplyMomentum": (4, 2),
    "ResourceApplyKerasMomentum": (4, 2),
    "ResourceApplyAdagrad": (6, 2),
    "ResourceApplyRMSProp": (11, 3),
    "ResourceApplyAdam": (12, 3),
}

BATCH_NORM = {"inference": 3, "training": 7, "gradient": 9}

# reads of its (first) input only the elements of its output, or only the shape
GATHERS = frozenset({"Slice", "StridedSlice", "Gather", "GatherNd", "GatherV2", "ResourceGather"})
SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "Fill", "BroadcastGradientArgs", "Range"})
REDUCTIONS = frozenset({"All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"})
MOVES = frozenset(
    {
        *VIEWS,
        *GATHERS,
        *SHAPES,
        *("BroadcastTo", "Cast", "Concat", "ConcatV2", "DepthToSpace", "MirrorPad", "OneHot"),
        *("OnesLike", "Pack", "Pad", "PadV2", "Reverse", "ReverseV2", "SpaceToDepth", "Split"),
        *("SplitV", "StridedSliceGrad", "Tile", "Transpose", "Unpack", "Where", "ZerosLike"),
    }
)

# operations of a fused kernel on each element of its result
FUSED: Mapping[str, int] = {
    **dict.fromkeys(("BiasAdd", "Add", "Mul", "Relu", "Relu6", "Elu", "LeakyRelu"), 1),
    **dict.fromkeys(("Tanh", "Sigmoid", "GeluApproximate", "GeluExact"), 1),
    "FusedBatchNorm": BATCH_NORM["inference"],
}


def operations(op: Op, known: Filters = frozenset()) -> int | None:
    """Floating-point operations of one run; None where they are not known.

    `known`: `filters` of the job's ops; with them, gradients to filters are known too.
    """
    key = parse(op)
    if key is None:
        return None
    if key.family.startswith(NAMESPACE):
        return aten_flops.operations(key)
    found = convolution(key, op.output_bytes, known)
    if found is None:
        found = pooling(key, op.output_bytes)
    if found is None:
        found = _product(key)
    if found is not None:
        more = _fused(op, key)
        return None if more is None else found + more
    if key.family in MOVES or _reduces_nothing(op, key):
        return 0
    return _by_element(key)


def moved(op: Op) -> int | None:
    """Bytes that a run must read and write at least: each input once, each output once.

    None where an input's size is not known. Data in a cache is moved too: this is no count of
    memory traffic.
    """
    key = parse(op)
    if key is None:
        return None
    if key.family.startswith(NAMESPACE):
        return aten_flops.moved(key, op.output_bytes)
    if key.family in VIEWS or _reduces_nothing(op, key):
        return 0
    if key.family in SHAPES:
        return op.output_bytes
    if key.family in UPDATES:
        gradient = _gradient(key)
        return gradient.bytes * (1 + 2 * UPDATES[key.family][1]) if gradient else None
    if not all(map(sized, key.inputs)):
        return None
    if key.family in GATHERS:
        return 2 * op.output_bytes + sum(tensor.bytes for tensor in key.inputs[1:])
    return sum(tensor.bytes for tensor in key.inputs) + op.output_bytes


def _reduces_nothing(op: Op, key: Key) -> bool:
    """A reduction over dimensions of one element hands its input on."""
    return key.family in REDUCTIONS and key.inputs[0].bytes == op.output_bytes


def dtype(op: Op) -> str | None:
    """Type of the numbers that it computes with, as its key calls it; None where it has none, or
    its inputs are not known."""
    key = parse(op)
    return next((t.dtype for t in key.inputs if real(t)), None) if key else None


def matrix_factors(key: Key) -> tuple[int, int, int, int] | None:
    """Sizes of a product of matrices m x k and k x n, as (number of products, m, n, k). None for
    other ops, and where the shapes are not known."""
    if key.family.startswith(NAMESPACE):
        return aten_flops.matrix_factors(key)
    if key.family not in ("MatMul", "BatchMatMul"):
        return None
    if len(key.inputs) < 2 or not all(map(real, key.inputs[:2])):
        return None
    a, b = key.inputs[0].shape, key.inputs[1].shape
    if len(a) < 2 or len(b) < 2:
        return None
    rows, inner = _turned(a[-2:], key.true("transpose_a", "adj_x"))
    other, columns = _turned(b[-2:], key.true("transpose_b", "adj_y"))
    batch = broadcast(a[:-2], b[:-2])
    return None if inner != other or batch is None else (math.prod(batch), rows, columns, inner)


def _product(key: Key) -> int | None:
    """MatMul, BatchMatMul and Einsum: a multiplication and an addition for each combination."""
    if found := matrix_factors(key):
        return 2 * math.prod(found)
    if key.family == "Einsum" and len(key.inputs) > 1 and all(map(real, key.inputs[:2])):
        return _einsum(key.attributes.get("equation", ""), key.inputs[0].shape, key.inputs[1].shape)
    return None


def _einsum(equation: str, a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    left, arrow, _ = equation.replace(" ", "").partition("->")
    labels = left.split(",")
    # an ellipsis has more letters than its dimensions, so that it is not known
    if not arrow or "." in left or [len(word) for word in labels] != [len(a), len(b)]:
        return None
    sizes = dict(zip("".join(labels), (*a, *b), strict=True))
    return 2 * math.prod(sizes.values())


def _fused(op: Op, key: Key) -> int | None:
    """Further operations of the kernel on its result; None when they are not known."""
    names = key.words("fused_ops")
    if not all(name in FUSED for name in names):
        return None
    if not names:
        return 0
    if "Conv" in key.family:
        elements = output_elements(key)
    else:
        elements = op.output_bytes // SIZES[key.inputs[0].dtype]
    return None if elements is None else elements * sum(FUSED[name] for name in names)


def _by_element(key: Key) -> int | None:
    if key.family in UPDATES:
        gradient = _gradient(key)
        return _each(gradient, UPDATES[key.family][0]) if gradient else None
    if not key.inputs or not all(map(sized, key.inputs)):
        return None
    first = key.inputs[0]
    if key.family in ("AddN", "AccumulateN"):
        return _each(first, len(key.inputs) - 1)
    if key.family in ("FusedBatchNorm", "FusedBatchNormEx"):
        training = key.attributes.get("is_training") != "false"
        return _each(first, BATCH_NORM["training" if training else "inference"])
    if key.family in ("FusedBatchNormGrad", "FusedBatchNormGradEx"):
        return _each(first, BATCH_NORM["gradient"])
    if key.family in PER_INPUT:
        return _each(first, PER_INPUT[key.family])
    if key.family not in ELEMENTWISE or any(t.dtype.startswith("complex") for t in key.inputs):
        return None
    shape = broadcast(*(tensor.shape for tensor in key.inputs))
    if shape is None and key.family in ("BiasAdd", "Select"):
        # a bias of channels that come second; a condition on whole rows
        shape = key.inputs[-1 if key.family == "Select" else 0].shape
    if shape is None:
        return None
    return math.prod(shape) * ELEMENTWISE[key.family] if any(map(real, key.inputs)) else 0


def _gradient(key: Key) -> TensorType | None:
    """The tensor that an update takes: the largest, next to its scalars."""
    return max(filter(sized, key.inputs), key=lambda tensor: tensor.elements, default=None)


def _each(tensor: TensorType, count: int) -> int | None:
    """None for complex numbers, whose operations are several."""
    if tensor.dtype.startswith("complex"):
        return None
    return tensor.elements * count if real(tensor) else 0


def _turned(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    return shape[::-1] if transposed else shape
