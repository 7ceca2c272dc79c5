"""Operations and bytes of PyTorch's ops, by the conventions of `flops`.

Images have their channels first; a filter is [out, in of a group, window...]. Arguments that are no
tensors are in a key by their name in PyTorch's own schema of the op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dltune.analysis.keys import Key, Layout, Sliding, broadcast, real, sized
from dltune.schemas.graph import VIEWS, TensorType, aten_name

# operations for each element of the result, which has the inputs' broadcast shape
ELEMENTWISE: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("abs", "acos", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh"),
            *("elu", "erf", "erfc", "exp", "exp2", "expm1", "floor", "leaky_relu", "lgamma", "log"),
            *("log10", "log1p", "log2", "logit", "neg", "reciprocal", "relu", "relu6", "round"),
            *("rsqrt", "sigmoid", "sign", "sin", "sinh", "softplus", "sqrt", "square", "tan"),
            *("tanh", "threshold", "trunc", "gelu", "mish", "isnan", "isinf", "isfinite"),
            *("add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "remainder"),
            *("fmod", "pow", "maximum", "minimum", "atan2", "eq", "ne", "lt", "le", "gt", "ge"),
            *("where", "masked_fill", "threshold_backward", "leaky_relu_backward", "elu_backward"),
        ),
        1,
    ),
    "silu": 2,
    "clamp": 2,
    "hardtanh": 2,
    "dropout": 2,
    "native_dropout": 2,
    "native_dropout_backward": 2,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
    "sigmoid_backward": 3,
    "tanh_backward": 3,
    "mse_loss": 3,
    "mse_loss_backward": 3,
}

# operations for each element of the first input
PER_INPUT: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("all", "any", "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "max", "mean"),
            *("min", "prod", "sum"),
        ),
        1,
    ),
    **dict.fromkeys(("norm", "linalg_vector_norm"), 2),
    **dict.fromkeys(("var", "std", "var_mean"), 4),
    # as flops.PER_INPUT has them; backwards: a product, its sum, a subtraction, a product
    **dict.fromkeys(("softmax", "log_softmax"), 5),
    **dict.fromkeys(("softmax_backward_data", "log_softmax_backward_data"), 4),
    # mean, difference, its square, their mean, product with what normalises, scale, shift
    **dict.fromkeys(("batch_norm", "native_batch_norm", "layer_norm", "native_layer_norm"), 7),
    **dict.fromkeys(("group_norm", "native_group_norm"), 7),
    **dict.fromkeys(("native_batch_norm_backward", "native_layer_norm_backward"), 9),
    "native_group_norm_backward": 9,
}

MOVES = frozenset(
    {
        *("arange", "cat", "clone", "constant_pad_nd", "contiguous", "copy", "embedding", "empty"),
        *("empty_like", "empty_strided", "fill", "full", "full_like", "gather", "index"),
        *("index_select", "item", "local_scalar_dense", "new_empty", "new_zeros", "ones"),
        *("ones_like", "pad", "repeat", "resize", "roll", "stack", "to", "to_copy", "zero"),
        *("zeros", "zeros_like"),
    }
)


def operations(key: Key) -> int | None:
    """Floating-point operations of one run; None where they are not known."""
    name = aten_name(key.family)
    if name in VIEWS or name in MOVES:
        return 0
    if name in _CONVOLUTIONS:
        return _convolution(key, backward=name.endswith("backward"))
    if name in _PRODUCTS:
        return _product(name, key.inputs)
    if name == "scaled_dot_product_attention" or name.startswith("scaled_dot_product_flash"):
        return _attention(key.inputs, backward=name.endswith("backward"))
    if not key.inputs or not all(map(sized, key.inputs)):
        return None
    if any(tensor.dtype.startswith("complex") for tensor in key.inputs):
        return None
    first = key.inputs[0]
    if name in PER_INPUT:
        return first.elements * PER_INPUT[name] if real(first) else 0
    if name not in ELEMENTWISE:
        return None
    shape = broadcast(*(tensor.shape for tensor in key.inputs))
    if shape is None:
        return None
    return math.prod(shape) * ELEMENTWISE[name] if any(map(real, key.inputs)) else 0


def moved(key: Key, output_bytes: int) -> int | None:
    """Bytes that a run must read and write at least. `output_bytes`: 0 where they are not known;
    they are found for what gives out as much as it takes, element by element."""
    name = aten_name(key.family)
    if name in VIEWS:
        return 0
    if not all(map(sized, key.inputs)):
        return None
    read = sum(tensor.bytes for tensor in key.inputs)
    if not output_bytes and name in ELEMENTWISE and key.inputs:
        output_bytes = max(tensor.bytes for tensor in key.inputs)
    return read + output_bytes


def matrix_factors(key: Key) -> tuple[int, int, int, int] | None:
    """Return `flops.matrix_factors` of a PyTorch op."""
    name = aten_name(key.family)
    return _factors(name, key.inputs) if name in _PRODUCTS else None


def kind_of(name: str) -> str:
    """One word for ops of one kind of work: `linear` calls `addmm`, and `conv2d` `convolution`."""
    if name in _PRODUCTS:
        return "product"
    return "convolution" if name in _CONVOLUTIONS - {"convolution_backward"} else name


# places of the two factors, and True if the second is transposed; an input before them is added
_PRODUCTS: Mapping[str, tuple[int, bool]] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), (0, False)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), (1, False)),
    "linear": (0, True),
}


def _factors(name: str, inputs: tuple[TensorType, ...]) -> tuple[int, int, int, int] | None:
    at, transposed = _PRODUCTS[name]
    if len(inputs) < at + 2 or not all(map(real, inputs[at : at + 2])):
        return None
    a, b = inputs[at].shape, inputs[at + 1].shape
    if not a or not b:
        return None
    if transposed:
        b = b[::-1]
    if transposed or len(b) == 1:  # all rows are one matrix's
        a = (math.prod(a[:-1]), a[-1])
        b = b if len(b) == 2 else (b[0], 1)
    if len(a) == 1:
        a = (1, a[0])
    batch = broadcast(a[:-2], b[:-2])
    if a[-1] != b[-2] or batch is None:
        return None
    return math.prod(batch), a[-2], b[-1], a[-1]


def _product(name: str, inputs: tuple[TensorType, ...]) -> int | None:
    found = _factors(name, inputs)
    if found is None:
        return None
    many, rows, columns, inner = found
    adds = name.startswith(("add", "badd")) or (name == "linear" and len(inputs) > 2)
    return many * rows * columns * (2 * inner + adds)


_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "convolution_backward"})


def _convolution(key: Key, *, backward: bool) -> int | None:
    """Backwards the images and the filter come after the gradient, and each of the two gradients
    that `output_mask` asks for takes as many multiplications as the convolution itself."""
    given = key.inputs[1:] if backward else key.inputs
    if len(given) < 2 or not all(map(real, given[:2])):
        return None
    image, filter_ = given[0], given[1]
    rank = len(filter_.shape) - 2
    if rank < 1 or len(image.shape) != rank + 2 or key.true("transposed"):
        return None
    slide = _sliding(key, rank)
    windows = slide.windows(image.shape[2:], filter_.shape[2:]) if slide else None
    if slide is None or windows is None:
        return None
    pairs = slide.pairs(image.shape[2:], filter_.shape[2:], windows)
    once = 2 * image.shape[0] * pairs * filter_.shape[0] * filter_.shape[1]
    results = image.shape[0] * math.prod(windows) * filter_.shape[0]
    if backward:
        asked = key.words("output_mask") or ("true",) * 3
        if len(asked) != 3:
            return None
        to_image, to_filter, to_bias = (word == "true" for word in asked)
        return once * (to_image + to_filter) + results * to_bias
    return once + results * (len(given) > 2)


def _sliding(key: Key, rank: int) -> Sliding | None:
    """None where the key lacks it: padding can be a word."""
    told = [key.numbers(name) for name in ("stride", "padding", "dilation")]
    strides, paddings, dilations = (one * rank if len(one) == 1 else one for one in told)
    if {len(strides), len(paddings), len(dilations)} != {rank} or min(*strides, *dilations) < 1:
        return None
    where = Layout(1, tuple(range(2, rank + 2)))
    return Sliding(where, strides, dilations, tuple((size, size) for size in paddings))


def _attention(inputs: tuple[TensorType, ...], *, backward: bool) -> int | None:
    """Queries by keys, a softmax over the keys, its rows by the values; backwards each product has
    two gradients, and the scores are computed once more (Dao et al., 2022, algorithm 4)."""
    given = inputs[1:] if backward else inputs
    if len(given) < 3 or not all(map(real, given[:3])):
        return None
    query, keys, values = (tensor.shape for tensor in given[:3])
    if min(len(query), len(keys), len(values)) < 2:
        return None
    scores = math.prod(query[:-1]) * keys[-2]
    forwards = 2 * scores * (query[-1] + values[-1])
    if backward:
        return 2 * forwards + 2 * scores * query[-1] + 4 * scores
    return forwards + 5 * scores
