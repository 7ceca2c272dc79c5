"""Published networks, built as layers: LeNet, AlexNet, VGG, Inception and ResNet.

`Building` puts layers together. `NETWORKS` holds the networks that TicTac was measured with.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dltune.simulate.networks import Layer, LayerKind, Network, Parameter

Padding = Literal["SAME", "VALID"]
CLASSES = 1000


@dataclass
class Building:
    """Layers put together, with the shapes that follow and the defaults of TF-Slim.

    A convolution of TF-Slim has a bias and a rectifier unless its arguments say otherwise.

    Each method adds layers behind those whose numbers it is given, and returns its last one's.
    Sizes of windows: height and width, or one number for both.
    """

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
        kind: LayerKind,
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

    def like(self, x: int, name: str, kind: LayerKind) -> int:
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
        self, x: int, name: str, kind: LayerKind, window: int, stride: int, padding: Padding
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


# Chains of layers


def lenet() -> Network:
    """LeCun et al., "Gradient-based learning applied to document recognition", 1998, as Caffe's
    example for MNIST has it: only the first product has a rectifier."""
    net = Building([Layer("input", "input", (), (28, 28, 1))])
    x = net.conv(0, "conv1", 20, 5, padding="VALID", relu=False)
    x = net.max_pool(x, "pool1", 2)
    x = net.conv(x, "conv2", 50, 5, padding="VALID", relu=False)
    x = net.max_pool(x, "pool2", 2)
    x = net.conv(x, "ip1", 500, 4, padding="VALID")
    return net.network(net.conv(x, "ip2", 10, 1, relu=False))


def alexnet_v2(side: int = 224) -> Network:
    """Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014; without
    local response normalisation. TF-Slim's pictures are 224 wide; with 227, as in TensorFlow's own
    benchmarks, windows of 11 leave no edge out."""
    net = Building.on(side)
    x = net.conv(0, "conv1", 64, 11, 4, "VALID")
    x = net.max_pool(x, "pool1", 3)
    x = net.conv(x, "conv2", 192, 5)
    x = net.max_pool(x, "pool2", 3)
    x = net.conv(x, "conv3", 384, 3)
    x = net.conv(x, "conv4", 384, 3)
    x = net.conv(x, "conv5", 256, 3)
    x = net.max_pool(x, "pool5", 3)
    return _classified(net, x)


def vgg(repeats: Sequence[int]) -> Network:
    """Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition",
    2014: so many convolutions in each of five blocks."""
    net = Building.on(224)
    x = 0
    for block, (count, channels) in enumerate(zip(repeats, (64, 128, 256, 512, 512), strict=True)):
        for number in range(count):
            x = net.conv(x, f"conv{block + 1}_{number + 1}", channels, 3)
        x = net.max_pool(x, f"pool{block + 1}", 2)
    return _classified(net, x)


def vgg_16() -> Network:
    return vgg((2, 2, 3, 3, 3))


def vgg_19() -> Network:
    return vgg((2, 2, 4, 4, 4))


def _classified(net: Building, x: int) -> Network:
    """Fully connected layers, as convolutions over all that is left."""
    x = net.conv(x, "fc6", 4096, net.layers[x].shape[0], padding="VALID")
    x = net.conv(net.dropout(x, "dropout6"), "fc7", 4096, 1)
    x = net.conv(net.dropout(x, "dropout7"), "fc8", CLASSES, 1, relu=False)
    return net.network(x)


# Inception networks: modules of branches. A branch is written as its steps: "96@3x3/2" is a
# convolution to 96 channels with a 3x3 window and stride 2, "max" and "avg" are 3x3 pools, "+"
# stands between convolutions that read the same and are put side by side.

_Modules = Mapping[str, tuple[str, ...]]

_V1: _Modules = {
    "3b": ("64@1x1", "96@1x1 128@3x3", "16@1x1 32@3x3", "max 32@1x1"),
    "3c": ("128@1x1", "128@1x1 192@3x3", "32@1x1 96@3x3", "max 64@1x1"),
    "4b": ("192@1x1", "96@1x1 208@3x3", "16@1x1 48@3x3", "max 64@1x1"),
    "4c": ("160@1x1", "112@1x1 224@3x3", "24@1x1 64@3x3", "max 64@1x1"),
    "4d": ("128@1x1", "128@1x1 256@3x3", "24@1x1 64@3x3", "max 64@1x1"),
    "4e": ("112@1x1", "144@1x1 288@3x3", "32@1x1 64@3x3", "max 64@1x1"),
    "4f": ("256@1x1", "160@1x1 320@3x3", "32@1x1 128@3x3", "max 128@1x1"),
    "5b": ("256@1x1", "160@1x1 320@3x3", "32@1x1 128@3x3", "max 128@1x1"),
    "5c": ("384@1x1", "192@1x1 384@3x3", "48@1x1 128@3x3", "max 128@1x1"),
}
_V2: _Modules = {
    "3b": ("64@1x1", "64@1x1 64@3x3", "64@1x1 96@3x3 96@3x3", "avg 32@1x1"),
    "3c": ("64@1x1", "64@1x1 96@3x3", "64@1x1 96@3x3 96@3x3", "avg 64@1x1"),
    "4a": ("128@1x1 160@3x3/2", "64@1x1 96@3x3 96@3x3/2", "max/2"),
    "4b": ("224@1x1", "64@1x1 96@3x3", "96@1x1 128@3x3 128@3x3", "avg 128@1x1"),
    "4c": ("192@1x1", "96@1x1 128@3x3", "96@1x1 128@3x3 128@3x3", "avg 128@1x1"),
    "4d": ("160@1x1", "128@1x1 160@3x3", "128@1x1 160@3x3 160@3x3", "avg 96@1x1"),
    "4e": ("96@1x1", "128@1x1 192@3x3", "160@1x1 192@3x3 192@3x3", "avg 96@1x1"),
    "5a": ("128@1x1 192@3x3/2", "192@1x1 256@3x3 256@3x3/2", "max/2"),
    "5b": ("352@1x1", "192@1x1 320@3x3", "160@1x1 224@3x3 224@3x3", "avg 128@1x1"),
    "5c": ("352@1x1", "192@1x1 320@3x3", "192@1x1 224@3x3 224@3x3", "max 128@1x1"),
}


def _seven(channels: int) -> tuple[str, ...]:
    """A module of 1x7 and 7x1 windows."""
    n = channels
    return (
        "192@1x1",
        f"{n}@1x1 {n}@1x7 192@7x1",
        f"{n}@1x1 {n}@7x1 {n}@1x7 {n}@7x1 192@1x7",
        "avg 192@1x1",
    )


_WIDE = (
    "320@1x1",
    "384@1x1 384@1x3+384@3x1",
    "448@1x1 384@3x3 384@1x3+384@3x1",
    "avg 192@1x1",
)
_V3: _Modules = {
    "5b": ("64@1x1", "48@1x1 64@5x5", "64@1x1 96@3x3 96@3x3", "avg 32@1x1"),
    "5c": ("64@1x1", "48@1x1 64@5x5", "64@1x1 96@3x3 96@3x3", "avg 64@1x1"),
    "5d": ("64@1x1", "48@1x1 64@5x5", "64@1x1 96@3x3 96@3x3", "avg 64@1x1"),
    "6a": ("384@3x3/2", "64@1x1 96@3x3 96@3x3/2", "max/2"),
    "6b": _seven(128),
    "6c": _seven(160),
    "6d": _seven(160),
    "6e": _seven(192),
    "7a": ("192@1x1 320@3x3/2", "192@1x1 192@1x7 192@7x1 192@3x3/2", "max/2"),
    "7b": _WIDE,
    "7c": _WIDE,
}


def inception_v1() -> Network:
    """Szegedy et al., "Going deeper with convolutions", 2014."""
    net = Building.on(224)
    x = net.conv(0, "1a", 64, 7, 2)
    x = net.max_pool(x, "2a", 3, padding="SAME")
    x = net.conv(x, "2b", 64, 1)
    x = net.conv(x, "2c", 192, 3)
    x = net.max_pool(x, "3a", 3, padding="SAME")
    for name, branches in _V1.items():
        if name == "4b":
            x = net.max_pool(x, "4a", 3, padding="SAME")
        if name == "5b":
            x = net.max_pool(x, "5a", 2, padding="SAME")
        x = _module(net, x, name, branches, "SAME")
    return _inception_classified(net, x)


def inception_v2() -> Network:
    """Ioffe and Szegedy, "Batch normalization", 2015; its first convolution is separable."""
    net = Building.on(224)
    x = net.separable(0, "1a", 64, 7, 2, multiplier=8)
    x = net.max_pool(x, "2a", 3, padding="SAME")
    x = net.conv(x, "2b", 64, 1)
    x = net.conv(x, "2c", 192, 3)
    x = net.max_pool(x, "3a", 3, padding="SAME")
    for name, branches in _V2.items():
        x = _module(net, x, name, branches, "SAME")
    return _inception_classified(net, x)


def inception_v3() -> Network:
    """Szegedy et al., "Rethinking the Inception architecture for computer vision", 2015, with its
    auxiliary head."""
    net = Building.on(299)
    x = net.conv(0, "1a", 32, 3, 2, "VALID")
    x = net.conv(x, "2a", 32, 3, padding="VALID")
    x = net.conv(x, "2b", 64, 3)
    x = net.max_pool(x, "3a", 3)
    x = net.conv(x, "3b", 80, 1, padding="VALID")
    x = net.conv(x, "4a", 192, 3, padding="VALID")
    x = net.max_pool(x, "5a", 3)
    for name, branches in _V3.items():
        x = _module(net, x, name, branches, "VALID")
        if name == "6e":
            head = net.avg_pool(x, "aux/1a", 5, 3)
            head = net.conv(head, "aux/1b", 128, 1)
            head = net.conv(head, "aux/2a", 768, 5, padding="VALID")
            head = net.conv(head, "aux/2b", CLASSES, 1, relu=False)
            net.add("aux/squeeze", "squeeze", (head,), (CLASSES,))
    return _inception_classified(net, x)


def _module(net: Building, x: int, name: str, branches: tuple[str, ...], strided: Padding) -> int:
    """`strided`: the padding of steps that stride; the others keep the size."""
    ends = []
    for number, branch in enumerate(branches):
        end = x
        for place, step in enumerate(branch.split()):
            here = f"{name}/branch_{number}/{place}"
            sides = [
                _step(net, end, f"{here}{letter}", one, strided)
                for letter, one in zip("abc", step.split("+"), strict=False)
            ]
            end = sides[0] if len(sides) == 1 else net.concat(here, sides)
        ends.append(end)
    return net.concat(name, ends)


def _step(net: Building, x: int, name: str, step: str, strided: Padding) -> int:
    what, _, stride = step.partition("/")
    padding: Padding = strided if stride else "SAME"
    if what == "max":
        return net.max_pool(x, name, 3, int(stride or 1), padding)
    if what == "avg":
        return net.avg_pool(x, name, 3, int(stride or 1), padding)
    channels, height, width = map(int, re.split("[@x]", what))
    return net.conv(x, name, channels, (height, width), int(stride or 1), padding)


def _inception_classified(net: Building, x: int) -> Network:
    x = net.avg_pool(x, "pool", net.layers[x].shape[0])
    x = net.dropout(x, "dropout")
    return net.network(net.conv(x, "logits", CLASSES, 1, relu=False))


# Residual networks of both versions, as in TF-Slim: the last unit of a block strides


def resnet_v1(units: Sequence[int]) -> Network:
    """He et al., "Deep residual learning for image recognition", 2015: so many units in each of
    four blocks."""
    net = Building.on(224)
    x = _strided(net, 0, "conv1", 64, 7, 2)
    x = net.max_pool(x, "pool1", 3)
    for name, channels, stride in _units(units):
        short = _short(net, x, x, name, channels, stride)
        y = net.conv(x, f"{name}/conv1", channels, 1)
        y = _strided(net, y, f"{name}/conv2", channels, 3, stride)
        y = net.conv(y, f"{name}/conv3", 4 * channels, 1, relu=False)
        x = net.relu(net.sum(f"{name}/add", short, y), name)
    x = net.mean(x, "pool5")
    return net.network(net.conv(x, "logits", CLASSES, 1, relu=False))


def resnet_v2(units: Sequence[int]) -> Network:
    """He et al., "Identity mappings in deep residual networks", 2016: units begin with batch
    normalisation and a rectifier."""
    net = Building.on(224)
    x = _strided(net, 0, "conv1", 64, 7, 2, relu=False)
    x = net.max_pool(x, "pool1", 3)
    for name, channels, stride in _units(units):
        active = net.batch_norm(x, f"{name}/preact")
        short = _short(net, x, active, name, channels, stride)
        y = net.conv(active, f"{name}/conv1", channels, 1)
        y = _strided(net, y, f"{name}/conv2", channels, 3, stride)
        y = net.conv(y, f"{name}/conv3", 4 * channels, 1, relu=False)
        x = net.sum(f"{name}/add", short, y)
    x = net.mean(net.batch_norm(x, "postnorm"), "pool5")
    return net.network(net.conv(x, "logits", CLASSES, 1, relu=False))


def _units(units: Sequence[int]) -> list[tuple[str, int, int]]:
    """Name, channels of the bottleneck and stride."""
    return [
        (f"block{block}/unit_{unit}", 32 << block, 2 if unit == count and block < 4 else 1)
        for block, count in enumerate(units, 1)
        for unit in range(1, count + 1)
    ]


def _short(net: Building, x: int, active: int, name: str, channels: int, stride: int) -> int:
    """Past the unit: as it came, or brought to the unit's depth."""
    if net.layers[x].shape[-1] != 4 * channels:
        return net.conv(active, f"{name}/shortcut", 4 * channels, 1, stride, relu=False)
    return net.max_pool(x, f"{name}/shortcut", 1, stride) if stride > 1 else x


def _strided(
    net: Building, x: int, name: str, channels: int, window: int, stride: int, *, relu: bool = True
) -> int:
    """Padded alike on all sides before it strides."""
    if stride == 1:
        return net.conv(x, name, channels, window, relu=relu)
    padded = net.pad(x, f"{name}/pad", (window - 1) // 2)
    return net.conv(padded, name, channels, window, stride, "VALID", relu=relu)


# The networks that TicTac was measured with (its Table 1), as TF-Slim of TensorFlow 1.8 builds them
# by default: without the arguments that add batch normalisation, so that every convolution has a
# bias. Only the units of ResNet v2 ask for it themselves. The paper's own published program builds
# them this way too, and then all of the table's parameters, sizes and counts of ops come out.


@dataclass(frozen=True)
class Published:
    """A network of TicTac's Table 1. `batch`: the table's standard batch size."""

    build: Callable[[], Network]
    batch: int


_50, _101 = (3, 4, 6, 3), (3, 4, 23, 3)
NETWORKS: Mapping[str, Published] = {
    "AlexNet v2": Published(alexnet_v2, 512),
    "Inception v1": Published(inception_v1, 128),
    "Inception v2": Published(inception_v2, 128),
    "Inception v3": Published(inception_v3, 32),
    "ResNet-50 v1": Published(functools.partial(resnet_v1, _50), 32),
    "ResNet-101 v1": Published(functools.partial(resnet_v1, _101), 64),
    "ResNet-50 v2": Published(functools.partial(resnet_v2, _50), 64),
    "ResNet-101 v2": Published(functools.partial(resnet_v2, _101), 32),
    "VGG-16": Published(vgg_16, 32),
    "VGG-19": Published(vgg_19, 32),
}
