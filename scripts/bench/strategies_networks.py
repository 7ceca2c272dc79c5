"""Three networks that strategies_rank.py trains, as operators that can be divided."""

from __future__ import annotations

import math

from dltune.systems.parallelism.schemas.operators import (
    SCHEMA,
    Dimension,
    Input,
    Kind,
    Operator,
    Operators,
    Region,
    Weights,
)

FLOAT = 4


class _Network:
    """Operators one after the other; each method gives the place of what it adds. The samples come
    first, the channels last."""

    def __init__(self, name: str, batch: int) -> None:
        self._name, self._batch = name, batch
        self._operators: list[Operator] = []
        self._weights: list[Weights] = []

    def data(self, type: str, *shape: int) -> int:
        dimensions = (
            Dimension("sample", self._batch, "sample"),
            *(Dimension(f"d{n}", size, "whole") for n, size in enumerate(shape)),
        )
        self._operators.append(Operator(type, type, dimensions, 0.0, 0.0, gradient=False))
        return 0

    def windowed(self, reads: int, name: str, type: str, channels: int, window: int) -> int:
        """A convolution that keeps height and width, or a pool that halves them."""
        given = self._operators[reads].dimensions
        pool = "pool" in type
        stride = window if pool else 1
        before = 0 if pool else -(window // 2)
        sides = [d.size // stride for d in given[1:3]]
        regions = (
            Region(1, 0),
            *(Region(window, axis, stride, before) for axis in (1, 2)),
            Region(1, 3) if pool else Region(given[3].size),
        )
        learned = 0 if pool else window * window * given[3].size
        kind: Kind = "attribute" if pool else "parameter"
        return self._add(name, type, (*sides, channels), (reads, regions), learned, kind)

    def dense(self, reads: int, name: str, type: str, channels: int) -> int:
        """Of all that a sample has, or of what one of its steps has."""
        given = self._operators[reads].dimensions
        kept = given[1:2] if len(given) == 3 else ()
        regions = [Region(1, 0)]
        regions += [Region(1, 1)] if kept else []
        regions += [Region(d.size) for d in given[1 + len(kept) :]]
        learned = math.prod(d.size for d in given[1 + len(kept) :])
        shape = (*(d.size for d in kept), channels)
        return self._add(name, type, shape, (reads, tuple(regions)), learned, "parameter")

    def embedding(self, reads: int, name: str, words: int, channels: int) -> int:
        steps = self._operators[reads].dimensions[1].size
        regions = (Region(1, 0), Region(1, 1))
        return self._add(name, name, (steps, channels), (reads, regions), words, "parameter")

    def add(self, one: int, other: int, name: str) -> int:
        shape = tuple(d.size for d in self._operators[one].dimensions[1:])
        regions = tuple(Region(1, n) for n in range(len(shape) + 1))
        place = self._add(name, "add", shape, (one, regions), 0, "attribute")
        added = self._operators[place]
        inputs = (*added.inputs, Input(other, regions))
        self._operators[place] = Operator(
            *(added.name, added.type, added.dimensions, added.flops, added.backward_flops, inputs)
        )
        return place

    def mean(self, reads: int, name: str) -> int:
        steps, channels = self._operators[reads].dimensions[1:]
        regions = (Region(1, 0), Region(steps.size), Region(1, 1))
        return self._add(name, "mean", (channels.size,), (reads, regions), 0, "attribute")

    def classify(self, reads: int, classes: int) -> None:
        """A dense layer, and a loss that reads all of a sample's classes."""
        x = self.dense(reads, "classes", "dense bias", classes)
        dimensions = self._operators[x].dimensions
        whole = dimensions[0], Dimension("channel", classes, "whole")
        inputs = (Input(x, (Region(1, 0), Region(classes))),)
        size = 5.0 * math.prod(d.size for d in dimensions)
        self._operators.append(Operator("loss", "softmax", whole, size, size, inputs))

    def network(self) -> Operators:
        return Operators(SCHEMA, self._name, tuple(self._operators), tuple(self._weights))

    def _add(
        self,
        name: str,
        type: str,
        shape: tuple[int, ...],
        reads: tuple[int, tuple[Region, ...]],
        learned: int,
        channels: Kind,
    ) -> int:
        """`learned`: weights for each channel, its bias besides."""
        bias = "bias" in type
        sizes = [self._batch, *shape]
        names = ["sample", *(f"d{n}" for n in range(len(shape) - 1)), "channel"]
        # where windows overlap XLA sends their edges four times, one way after the other
        between: Kind = "whole" if type.startswith("conv") else "attribute"
        kinds: list[Kind] = ["sample", *[between] * (len(shape) - 1), channels]  # type: ignore[list-item]
        dimensions = tuple(map(Dimension, names, sizes, kinds))
        weights = None
        if learned:
            weights = len(self._weights)
            self._weights.append(Weights(name, FLOAT * shape[-1] * (learned + bias)))
        flops = 2.0 * math.prod(sizes) * max(learned, 1)
        inputs = (Input(*reads),)
        operator = Operator(name, type, dimensions, flops, 2 * flops, inputs, weights)
        self._operators.append(operator)
        return len(self._operators) - 1


def convolutional() -> Operators:
    net = _Network("convolutional", 64)
    x = net.data("input", 32, 32, 3)
    for number, (channels, window) in enumerate(((32, 5), (64, 3), (64, 3)), 1):
        x = net.windowed(
            x, f"conv{number}", f"conv {window}x{window}/1 bias relu", channels, window
        )
        x = net.windowed(x, f"pool{number}", "max_pool 2x2/2", channels, 2)
    x = net.dense(x, "dense1", "dense bias relu", 1024)
    x = net.dense(x, "dense2", "dense bias relu", 512)
    net.classify(x, 10)
    return net.network()


def points() -> Operators:
    """Each point by itself through narrow layers, then their mean through wide ones: deep sets."""
    net = _Network("points", 64)
    x = net.data("input", 64, 128)
    for number in range(1, 4):
        x = net.dense(x, f"narrow{number}", "dense bias relu", 256)
    x = net.mean(x, "mean")
    for number in range(1, 4):
        x = net.dense(x, f"wide{number}", "dense bias relu", 1024)
    net.classify(x, 10)
    return net.network()


def residual() -> Operators:
    """An embedding, two of a transformer's blocks without their attention, and a wide head."""
    net = _Network("residual", 64)
    x = net.embedding(net.data("tokens", 32), "embedding", 1000, 128)
    for number in range(1, 3):
        h = net.dense(x, f"wide{number}", "dense bias relu", 512)
        h = net.dense(h, f"narrow{number}", "dense bias", 128)
        x = net.add(x, h, f"add{number}")
    x = net.dense(net.mean(x, "mean"), "hidden", "dense bias relu", 2048)
    net.classify(x, 1000)
    return net.network()


NETWORKS = {"convolutional": convolutional, "points": points, "residual": residual}
