"""A network as layers: what each reads, gives out and learns, and its floating-point operations.

These are counted as in `analysis/flops.py`: a multiplication, an addition and a comparison are one
operation each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dltune.analysis.flops import BATCH_NORM

FLOAT = 4  # bytes of a number

Kind = Literal[
    "input",
    "conv",
    "depthwise",
    "dense",
    "bias",
    "batch_norm",
    "lrn",
    "relu",
    "max_pool",
    "avg_pool",
    "mean",
    "pad",
    "concat",
    "add",
    "fork",
    "dropout",
    "squeeze",
    "softmax",
]


@dataclass(frozen=True)
class Parameter:
    name: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return FLOAT * math.prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One operation. `inputs`: numbers of the layers that it reads. `shape`: of what it gives out
    for one sample, channels last. `window`: height and width that a pool looks at. A `fork` gives
    each of its readers a tensor of its own.

    The weights of a convolution are (height, width, channels in, channels out), of a depthwise one
    (height, width, channels in, channels out for each). `batch_norm` learns an offset, no scale.
    """

    name: str
    kind: Kind
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    parameters: tuple[Parameter, ...] = ()
    window: tuple[int, int] = (1, 1)

    @property
    def size(self) -> int:
        """Numbers that it gives out for one sample."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Network:
    """`layers`: each after those that it reads. The first is the input, the last gives the
    predictions; others that nobody reads are heads besides."""

    layers: Sequence[Layer]

    @property
    def parameters(self) -> list[Parameter]:
        return [parameter for layer in self.layers for parameter in layer.parameters]

    @functools.cached_property
    def learns(self) -> list[bool]:
        """By layer, whether it or one before it learns: a gradient to what it gives out is of
        use."""
        found: list[bool] = []
        for layer in self.layers:
            found.append(bool(layer.parameters) or any(found[one] for one in layer.inputs))
        return found

    @functools.cached_property
    def needed(self) -> list[int]:
        """The last layer, and those that it reads, itself or through others: no heads besides."""
        needed = {len(self.layers) - 1}
        for number in reversed(range(len(self.layers))):
            if number in needed:
                needed.update(self.layers[number].inputs)
        return sorted(needed)

    def forward(self, layer: Layer, *, training: bool) -> int:
        """Operations for one sample."""
        match layer.kind:
            case "conv" | "depthwise" | "dense":
                return 2 * math.prod(layer.parameters[0].shape) * math.prod(layer.shape[:-1])
            case "max_pool" | "avg_pool":
                return math.prod(layer.window) * layer.size
            case "mean":
                return self.layers[layer.inputs[0]].size
            case "batch_norm":
                return BATCH_NORM["training" if training else "inference"] * layer.size
            case "lrn":  # squares of five channels added up, scaled and raised to a power
                return 13 * layer.size
            case "dropout":  # a number drawn, compared, the result scaled
                return 3 * layer.size if training else 0
            case "softmax":
                return 5 * layer.size
            case "bias" | "relu" | "add":
                return layer.size
            case _:
                return 0

    def backward(self, layer: Layer) -> int:
        """Operations for one sample, of the gradients to all that the layer reads and learns."""
        match layer.kind:
            case "conv" | "depthwise" | "dense":
                gradients = 1 + self.learns[layer.inputs[0]]
                return gradients * self.forward(layer, training=True)
            case "batch_norm":
                return BATCH_NORM["gradient"] * layer.size
            case "add":
                return 0
            case "dropout":
                return layer.size
            case _:
                return self.forward(layer, training=True)
