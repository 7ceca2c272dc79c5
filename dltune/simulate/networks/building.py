"""Layers put together, with the shapes that follow and the defaults of TF-Slim.

A convolution of TF-Slim has a bias and a rectifier unless it is told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dltune.simulate.networks.layer import (
    Kind,
    Layer,
    Network,
    Parameter,
)

Padding = Literal["SAME", "VALID"]
CLASSES = 1000


@dataclass
class Building:
    """Each method adds layers behind those whose numbers it is given, and returns its last one's.
    Sizes of windows: height and width, or one number for both."""

    layers: list[Layer] = field(default_factory=list)

    @classmethod
    def on(cls, side: int) -> Building:
        """For square pictures in three colours: layer 0."""
        return cls([Layer("input", "input", (), (side, side, 3))])

    def network(self, logits: int) -> Network:
        """With one row of classes at the end."""
        squeezed = self.add("squeeze", "squeeze", (logits,), self.layers[logits].shape[-1:])
        self.add("predictions", "softmax", (squeezed,), self.layers[squeezed].shape)
        return Network(tuple(self.layers))

    def add(
        self,
        name: str,
        kind: Kind,
        inputs: Sequence[int],
        shape: Sequence[int],
        parameter: Parameter | None = None,
        window: tuple[int, int] = (1, 1),
    ) -> int:
        parameters = (parameter,) if parameter else ()
        self.layers.append(Layer(name, kind, tuple(inputs), tuple(shape), parameters, window))
        return len(self.layers) - 1

    def conv(
        self,
        x: int,
        name: str,
        channels: int,
        window: int | tuple[int, int],
        stride: int = 1,
        padding: Padding = "SAME",
        *,
        relu: bool = True,
    ) -> int:
        return self._biased(self.bare(x, name, channels, window, stride, padding), name, relu)

    def bare(
        self,
        x: int,
        name: str,
        channels: int,
        window: int | tuple[int, int],
        stride: int = 1,
        padding: Padding = "SAME",
    ) -> int:
        """A convolution without a layer for its bias."""
        size = _pair(window)
        *space, depth = self.layers[x].shape
        shape = (*_positions(space, size, stride, padding), channels)
        weights = Parameter(f"{name}/weights", (*size, depth, channels))
        return self.add(name, "conv", (x,), shape, weights)

    def dense(self, x: int, name: str, units: int) -> int:
        """Without a layer for its bias."""
        weights = Parameter(f"{name}/weights", (self.layers[x].size, units))
        return self.add(name, "dense", (x,), (1, 1, units), weights)

    def like(self, x: int, name: str, kind: Kind) -> int:
        """Gives out as much as it reads, and learns nothing."""
        return self.add(name, kind, (x,), self.layers[x].shape)

    def separable(
        self, x: int, name: str, channels: int, window: int, stride: int, multiplier: int
    ) -> int:
        """Each channel on its own, to so many; these together."""
        *space, depth = self.layers[x].shape
        size = _pair(window)
        places = _positions(space, size, stride, "SAME")
        weights = Parameter(f"{name}/depthwise_weights", (*size, depth, multiplier))
        shape = (*places, depth * multiplier)
        own = self.add(f"{name}/depthwise", "depthwise", (x,), shape, weights)
        weights = Parameter(f"{name}/pointwise_weights", (1, 1, depth * multiplier, channels))
        mixed = self.add(name, "conv", (own,), (*places, channels), weights)
        return self._biased(mixed, name, relu=True)

    def _biased(self, x: int, name: str, relu: bool) -> int:
        shape = self.layers[x].shape
        biases = Parameter(f"{name}/biases", shape[-1:])
        x = self.add(f"{name}/bias", "bias", (x,), shape, biases)
        return self.relu(x, name) if relu else x

    def relu(self, x: int, name: str) -> int:
        return self.like(x, f"{name}/relu", "relu")

    def batch_norm(self, x: int, name: str) -> int:
        """With a rectifier."""
        shape = self.layers[x].shape
        offset = Parameter(f"{name}/beta", shape[-1:])
        return self.relu(self.add(name, "batch_norm", (x,), shape, offset), name)

    def max_pool(
        self, x: int, name: str, window: int, stride: int = 2, padding: Padding = "VALID"
    ) -> int:
        return self._pool(x, name, "max_pool", window, stride, padding)

    def avg_pool(
        self, x: int, name: str, window: int, stride: int = 1, padding: Padding = "VALID"
    ) -> int:
        return self._pool(x, name, "avg_pool", window, stride, padding)

    def _pool(
        self, x: int, name: str, kind: Kind, window: int, stride: int, padding: Padding
    ) -> int:
        *space, depth = self.layers[x].shape
        size = _pair(window)
        shape = (*_positions(space, size, stride, padding), depth)
        return self.add(name, kind, (x,), shape, window=size)

    def mean(self, x: int, name: str) -> int:
        """Over all positions."""
        return self.add(name, "mean", (x,), (1, 1, self.layers[x].shape[-1]))

    def pad(self, x: int, name: str, edge: int) -> int:
        """Zeros around."""
        height, width, depth = self.layers[x].shape
        return self.add(name, "pad", (x,), (height + 2 * edge, width + 2 * edge, depth))

    def dropout(self, x: int, name: str) -> int:
        return self.like(x, name, "dropout")

    def sum(self, name: str, x: int, y: int) -> int:
        return self.add(name, "add", (x, y), self.layers[x].shape)

    def concat(self, name: str, branches: Sequence[int]) -> int:
        """Channels side by side."""
        space = self.layers[branches[0]].shape[:-1]
        depth = sum(self.layers[branch].shape[-1] for branch in branches)
        return self.add(name, "concat", branches, (*space, depth))


def _pair(window: int | tuple[int, int]) -> tuple[int, int]:
    return (window, window) if isinstance(window, int) else window


def _positions(
    space: Sequence[int], window: tuple[int, int], stride: int, padding: Padding
) -> list[int]:
    """How many windows there are, downwards and across."""
    if padding == "SAME":
        return [-(-length // stride) for length in space]
    return [(length - size) // stride + 1 for length, size in zip(space, window, strict=True)]
