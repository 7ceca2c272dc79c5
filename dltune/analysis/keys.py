"""Op keys for the analysis: families of op types, attributes, shapes, and sliding windows."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dltune.schemas import graph
from dltune.schemas.graph import SIZES, TensorType
from dltune.schemas.profile import Op

FLOATS = frozenset({"float", "double", "half", "bfloat16"})

_NUMBER = re.compile(r"-?[0-9]+")


class Key(msgspec.Struct, frozen=True):
    """`family`: the op type without additions of kernel rewriting (`_Mkl`, `Native`, `_Fused`) and
    without its version. `attributes`: text as in the key."""

    family: str
    inputs: tuple[TensorType, ...]
    attributes: Mapping[str, str]

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list attribute such as strides=[1,2,2,1]; empty when it is not there, or no such."""
        words = self.words(name)
        return tuple(map(int, words)) if all(map(_NUMBER.fullmatch, words)) else ()

    def words(self, name: str) -> tuple[str, ...]:
        text = self.attributes.get(name, "").strip("[]")
        return tuple(text.split(",")) if text else ()

    def true(self, *names: str) -> bool:
        """True if one of these attributes holds."""
        return any(self.attributes.get(name) == "true" for name in names)


def family(kind: str) -> str:
    """`_MklNativeFusedConv2D` and `_FusedConv2D` are `Conv2D`; FusedBatchNorm is a name itself."""
    name = kind.lstrip("_")
    for prefix in ("Mkl", "Native", "Fused"):
        if name.startswith(prefix) and not name.startswith("FusedBatchNorm"):
            name = name[len(prefix) :]
    return re.sub(r"V\d+$", "", name)


def parse(op: Op) -> Key | None:
    """None when the key has an input whose shape is not known, or is none that dltune wrote."""
    try:
        found = graph.parse_key(op.key)
    except ValueError:
        return None
    return Key(family(found.type), found.inputs, found.attributes)


def real(tensor: TensorType) -> bool:
    """True if arithmetic on it is floating-point arithmetic, of real numbers."""
    return tensor.dtype in FLOATS


def sized(tensor: TensorType) -> bool:
    """True if its elements are numbers, and not strings or handles."""
    return tensor.dtype in SIZES


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the combination of shapes, element by element, by NumPy's rule; None for shapes that
    do not go together."""
    rank = max(map(len, shapes), default=0)
    found = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        longest = {size for size in sizes if size != 1} or {1}
        if len(longest) > 1:
            return None
        found.append(longest.pop())
    return tuple(found)


# families whose result is the memory of their first input
VIEWS = frozenset(
    {
        *("Arg", "Retval", "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims"),
        *("ReadVariableOp", "StopGradient", "PreventGradient", "EnsureShape", "AssignVariableOp"),
        *("NoOp", "Snapshot"),
    }
)


# Sliding windows of convolutions and poolings

Shape = tuple[int, ...]
# along one dimension: pairs are counted tap by tap, and an op's description can be anything
MOST_TAPS = 1_000_000


class Layout(msgspec.Struct, frozen=True):
    """Dimensions of an image tensor that are batch, channels and space."""

    channels: int
    space: tuple[int, ...]

    def spatial(self, shape: Sequence[int]) -> Shape:
        return tuple(shape[axis] for axis in self.space)


def layout(key: Key, rank: int) -> Layout:
    """By `data_format`: channels last unless it says that they are first."""
    if key.attributes.get("data_format", "").startswith("NC"):
        return Layout(1, tuple(range(2, rank)))
    return Layout(rank - 1, tuple(range(1, rank - 1)))


class Sliding(msgspec.Struct, frozen=True):
    """Places of windows along each spatial dimension, and pairs of a window and an element in it.

    Elements of padding do not count: a kernel need not compute with them, and on small images they
    would be most of the work (3x3 windows on 1x1 images have one element in nine). oneDNN's
    benchdnn counts the same way.

    `padding`: (before, after) of each dimension; None: as much as SAME needs.
    """

    where: Layout
    strides: Shape
    dilations: Shape
    padding: tuple[tuple[int, int], ...] | None

    def reach(self, axis: int, size: int) -> int:
        """Elements from a window's first to its last."""
        return (size - 1) * self.dilations[axis] + 1

    def windows(self, image: Shape, window: Shape) -> Shape | None:
        """Number of windows along each dimension; None when one does not fit, or cannot be
        meant."""
        found = []
        for axis, (size, taps) in enumerate(zip(image, window, strict=True)):
            stride = self.strides[axis]
            if self.padding is None:
                found.append(-(-size // stride))
            else:
                span = size + sum(self.padding[axis])
                found.append((span - self.reach(axis, taps)) // stride + 1)
        meant = all(taps <= MOST_TAPS for taps in window)
        return tuple(found) if meant and all(count > 0 for count in found) else None

    def pairs(self, image: Shape, window: Shape, windows: Shape) -> int:
        """(window, element of the image in it), over all windows."""
        return math.prod(
            self._pairs(axis, *sizes)
            for axis, sizes in enumerate(zip(image, window, windows, strict=True))
        )

    def _pairs(self, axis: int, size: int, taps: int, windows: int) -> int:
        stride, dilation = self.strides[axis], self.dilations[axis]
        if self.padding is None:
            missing = (windows - 1) * stride + self.reach(axis, taps) - size
            before = max(missing, 0) // 2
        else:
            before = self.padding[axis][0]
        total = 0
        for tap in range(taps):
            # windows w with 0 <= w * stride + tap * dilation - before < size
            offset = tap * dilation - before
            first = max(0, -(offset // stride))
            last = min(windows - 1, (size - 1 - offset) // stride)
            total += max(0, last - first + 1)
        return total

    def images(self, windows: Shape, window: Shape, area: int) -> Iterator[Shape]:
        """All image sizes of `area` elements on which there are so many windows."""
        choices: list[Iterable[int]] = []
        for axis, count in enumerate(windows):
            stride = self.strides[axis]
            largest = count * stride
            if self.padding is not None:
                largest += self.reach(axis, window[axis]) - 1 - sum(self.padding[axis])
            choices.append(range(max(1, largest - stride + 1), largest + 1))
        for image in itertools.product(*choices):
            if math.prod(image) == area:
                yield image


def factors(product: int, rank: int) -> Iterator[Shape]:
    """All window sizes of `rank` dimensions with that many elements."""
    if rank == 1:
        yield (product,)
        return
    for first in range(1, product + 1):
        if product % first == 0:
            for rest in factors(product // first, rank - 1):
                yield (first, *rest)


def sliding(key: Key, rank: int) -> Sliding | None:
    """Return the windows over an image of `rank` dimensions. None when the key does not say how
    windows slide."""
    where = layout(key, rank)
    strides = key.numbers("strides")
    dilations = key.numbers("dilations") or (1,) * rank
    if len(strides) != rank or len(dilations) != rank or min(*strides, *dilations) < 1:
        return None
    padding: tuple[tuple[int, int], ...] | None
    match key.attributes.get("padding"):
        case "SAME":
            padding = None
        case "VALID":
            padding = ((0, 0),) * len(where.space)
        case "EXPLICIT":
            given = key.numbers("explicit_paddings")
            if len(given) != 2 * rank:
                return None
            padding = tuple((given[2 * axis], given[2 * axis + 1]) for axis in where.space)
        case _:
            return None
    return Sliding(where, where.spatial(strides), where.spatial(dilations), padding)
