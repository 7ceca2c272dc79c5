"""A network's layers as operators that can be divided over devices.

Functions of each number that a convolution or a sum gives out (bias, normalisation, rectifier,
dropout) belong to it. So does the softmax at the end: where channels are divided, the parts
exchange only two numbers a sample for it. Padding belongs to its reader.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dltune.simulate.networks import Layer, Network
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

_FOLDED = frozenset({"bias", "batch_norm", "relu", "dropout", "softmax"})
_HANDED_ON = frozenset({"squeeze", "fork", "pad"})
_MIXING = frozenset({"conv", "dense"})  # each channel reads all
_WINDOWED = frozenset({"conv", "max_pool", "avg_pool"})
_OWN = _MIXING | _WINDOWED | {"input", "mean", "add", "concat"}


@dataclass
class _Group:
    """`layers` make one operator, that at `place`; `number` is that of the first layer."""

    place: int
    number: int
    layers: list[Layer]

    @property
    def head(self) -> Layer:
        return self.layers[0]

    @property
    def positions(self) -> tuple[int, ...]:
        """Return height and width of its output, if there is more than one position."""
        space = self.head.shape[:-1]
        return space if max(space, default=1) > 1 else ()


@dataclass(frozen=True)
class _Read:
    """The output of a layer: the group it is in, and how many zeros are on each side of it."""

    group: _Group
    edge: int = 0


def operators(network: Network, name: str, batch: int) -> Operators:
    """Those that the predictions need. Raises ValueError for a layer that is no operator: one of a
    kind unknown here, or one that would belong to another's which others read without it."""
    groups, given = _groups(network)
    weights = [
        Weights(group.head.name, size)
        for group in groups
        if (size := sum(p.bytes for layer in group.layers for p in layer.parameters))
    ]
    learned = {one.name: n for n, one in enumerate(weights)}
    found = []
    for group in groups:
        inputs = _inputs(group, [given[number] for number in group.head.inputs])
        own = learned.get(group.head.name)
        found.append(
            Operator(
                group.head.name,
                _type(group, inputs),
                _dimensions(group, batch, learns=own is not None),
                float(batch * sum(network.forward(one, training=True) for one in group.layers)),
                float(batch * sum(network.backward(one) for one in group.layers)),
                inputs,
                own,
                gradient=network.learns[group.number],
            )
        )
    return Operators(SCHEMA, name, tuple(found), tuple(weights))


def window(read: int, given: int, size: int) -> tuple[int, int]:
    """Stride and first position of windows of `size` in one direction, by how many there are over
    `read` positions: the smallest stride with which either of TensorFlow's paddings gives so many.
    Raises ValueError where none does."""
    for stride in range(1, read + 1):
        if read >= size and (read - size) // stride + 1 == given:
            return stride, 0
        if -(-read // stride) == given:
            return stride, -(max(0, (given - 1) * stride + size - read) // 2)
    raise ValueError(f"no stride gives {given} windows of {size} over {read} positions")


def _groups(network: Network) -> tuple[list[_Group], dict[int, _Read]]:
    """In order, and by layer what those that read it do read."""
    layers = network.layers
    readers = collections.Counter(one for n in network.needed for one in layers[n].inputs)
    groups: list[_Group] = []
    given: dict[int, _Read] = {}
    for number in network.needed:
        layer = layers[number]
        if layer.kind in _OWN:
            groups.append(_Group(len(groups), number, [layer]))
            given[number] = _Read(groups[-1])
            continue
        (source,) = layer.inputs
        before = given[source]
        if layer.kind in _FOLDED and readers[source] == 1 and not before.edge:
            before.group.layers.append(layer)
            given[number] = before
        elif layer.kind in _HANDED_ON:
            wider = layer.shape[0] - layers[source].shape[0] if layer.kind == "pad" else 0
            given[number] = _Read(before.group, before.edge + wider // 2)
        else:
            raise ValueError(f"the layer {layer.name!r} ({layer.kind}) is no operator")
    return groups, given


def _inputs(group: _Group, reads: Sequence[_Read]) -> tuple[Input, ...]:
    depths = [read.group.head.shape[-1] for read in reads]
    before = [sum(depths[:n]) if group.head.kind == "concat" else 0 for n in range(len(reads))]
    channel = 1 + len(group.positions)
    found = []
    for read, depth, passed in zip(reads, depths, before, strict=True):
        mixes = group.head.kind in _MIXING
        channels = Region(depth) if mixes else Region(1, channel, start=-passed)
        regions = (Region(1, 0), *_space(group, read), channels)
        found.append(Input(read.group.place, regions))
    return tuple(found)


def _space(group: _Group, read: _Read) -> Iterator[Region]:
    """Yield the regions of the input's height and width, if it has them."""
    for axis, length in enumerate(read.group.positions):
        size = _extent(group.head, axis, length)
        windows = group.positions[axis] if group.positions else 1
        stride, start = window(length + 2 * read.edge, windows, size)
        yield Region(size, 1 + axis if group.positions else None, stride, start - read.edge)


def _extent(layer: Layer, axis: int, length: int) -> int:
    """Return the extent of its windows in one direction, in which it reads `length` positions."""
    match layer.kind:
        case "conv":
            return layer.parameters[0].shape[axis]
        case "max_pool" | "avg_pool":
            return layer.window[axis]
        case "mean" | "dense":
            return length
        case _:
            return 1


def _dimensions(group: _Group, batch: int, *, learns: bool) -> tuple[Dimension, ...]:
    kind: Kind = "parameter" if learns else "attribute"
    if group.head.kind == "input":
        kind = "whole"  # each reader needs all colours
    space = zip(("height", "width"), group.positions, strict=False)
    return (
        Dimension("sample", batch, "sample"),
        *(Dimension(name, size, "attribute") for name, size in space),
        Dimension("channel", group.head.shape[-1], kind),
    )


def _type(group: _Group, inputs: Sequence[Input]) -> str:
    """Return all that changes the work in addition to the shapes: "conv 3x3/2 bias relu"."""
    head = group.head
    words: list[str] = [head.kind if group.positions or head.kind != "conv" else "dense"]
    if group.positions and head.kind in _WINDOWED:
        _, down, across, _ = inputs[0].regions
        words.append(f"{down.extent}x{across.extent}/{down.stride}")
    return " ".join([*words, *(layer.kind for layer in group.layers[1:])])
