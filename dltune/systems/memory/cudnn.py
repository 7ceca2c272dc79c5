"""The networks that SuperNeurons was measured with, as layers of cuDNN.

Their memory is that of a GPU, with cuDNN's workspaces. A convolution and a dense layer have their
biases inside, and copies and sums of branches are layers of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dltune.simulate.architectures import CLASSES, Building, Padding
from dltune.simulate.networks import Network

_SIDE = 227


def alexnet() -> Network:
    """SuperNeurons, section 4.1.1, note 3: 23 layers."""
    net = Building.on(_SIDE)
    x = net.like(net.bare(0, "CONV1", 96, 11, 4, "VALID"), "RELU1", "relu")
    x = net.max_pool(net.like(x, "LRN1", "lrn"), "POOL1", 3)
    x = net.like(net.bare(x, "CONV2", 256, 5), "RELU2", "relu")
    x = net.max_pool(net.like(x, "LRN2", "lrn"), "POOL2", 3)
    for number, channels in ((3, 384), (4, 384), (5, 256)):
        x = net.like(net.bare(x, f"CONV{number}", channels, 3), f"RELU{number}", "relu")
    x = net.max_pool(x, "POOL5", 3)
    for number in (1, 2):
        x = net.like(net.dense(x, f"FC{number}", 4096), f"RELU{5 + number}", "relu")
        x = net.dropout(x, f"DROPOUT{number}")
    net.like(net.dense(x, "FC3", CLASSES), "SOFTMAX", "softmax")
    return Network(tuple(net.layers))


def vgg_16() -> Network:
    net = Building.on(224)
    x = 0
    for block, (count, channels) in enumerate(
        zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512), strict=True), 1
    ):
        for number in range(1, count + 1):
            name = f"{block}_{number}"
            x = net.like(net.bare(x, f"CONV{name}", channels, 3), f"RELU{name}", "relu")
        x = net.max_pool(x, f"POOL{block}", 2)
    for number in (1, 2):
        x = net.like(net.dense(x, f"FC{number}", 4096), f"RELU{5 + number}", "relu")
        x = net.dropout(x, f"DROPOUT{number}")
    net.like(net.dense(x, "FC3", CLASSES), "SOFTMAX", "softmax")
    return Network(tuple(net.layers))


def resnet(units: Sequence[int]) -> Network:
    """Return so many bottlenecks in each of four blocks (section 4.2): three convolutions each, and
    two more layers. The layer that widens a block's first shortcut is not normalised: otherwise the
    recomputations of Table 1 do not come out."""
    net = Building.on(_SIDE)
    x = _normalised(net, net.bare(0, "CONV1", 64, 7, 2), "1")
    x = net.max_pool(x, "POOL1", 3)
    for block, count in enumerate(units, 2):
        for unit in range(1, count + 1):
            x = _bottleneck(net, x, block, f"{block}_{unit}", first=unit == 1)
    x = net.avg_pool(x, "POOL2", 7)
    net.like(net.dense(x, "FC", CLASSES), "SOFTMAX", "softmax")
    return Network(tuple(net.layers))


def _bottleneck(net: Building, x: int, block: int, name: str, *, first: bool) -> int:
    channels = 16 << block
    stride = 2 if first and block > 2 else 1
    x = net.like(x, f"FORK{name}", "fork")
    short = net.bare(x, f"CONV{name}_0", 4 * channels, 1, stride) if first else x
    y = _normalised(net, net.bare(x, f"CONV{name}_1", channels, 1, stride), f"{name}_1")
    y = _normalised(net, net.bare(y, f"CONV{name}_2", channels, 3), f"{name}_2")
    y = net.like(net.bare(y, f"CONV{name}_3", 4 * channels, 1), f"BN{name}_3", "batch_norm")
    return net.like(net.sum(f"JOIN{name}", short, y), f"RELU{name}", "relu")


def _normalised(net: Building, x: int, name: str) -> int:
    return net.like(net.like(x, f"BN{name}", "batch_norm"), f"RELU{name}", "relu")


_STEM = (
    ("max/2", "96@3x3/2"),
    ("64@1x1 96@3x3v", "64@1x1 64@7x1 64@1x7 96@3x3v"),
    ("192@3x3/2", "max/2"),
)
_A = ("avg 96@1x1", "96@1x1", "64@1x1 96@3x3", "64@1x1 96@3x3 96@3x3")
_TO_B = ("max/2", "384@3x3/2", "192@1x1 224@3x3 256@3x3/2")
_B = (
    "avg 128@1x1",
    "384@1x1",
    "192@1x1 224@1x7 256@7x1",
    "192@1x1 192@1x7 224@7x1 224@1x7 256@7x1",
)
_TO_C = ("max/2", "192@1x1 192@3x3/2", "256@1x1 256@1x7 320@7x1 320@3x3/2")
_C = (
    "avg 256@1x1",
    "256@1x1",
    "384@1x1 256@1x3+256@3x1",
    "384@1x1 448@1x3 512@3x1 256@1x3+256@3x1",
)


def inception_v4() -> Network:
    """Szegedy, Ioffe, Vanhoucke and Alemi, "Inception-v4, Inception-ResNet and the impact of
    residual connections on learning", 2016.

    Each convolution is normalised, and modules are between a fork and a concatenation. Branches are
    written as in `dltune/simulate/architectures.py`; here no convolution has a bias.
    """
    net = Building.on(299)
    x = 0
    for number, step in enumerate(("32@3x3/2", "32@3x3v", "64@3x3")):
        x = _step(net, x, f"stem_{number}", step)
    modules = (*_STEM, *4 * (_A,), _TO_B, *7 * (_B,), _TO_C, *3 * (_C,))
    for number, branches in enumerate(modules, 1):
        x = _module(net, x, str(number), branches)
    x = net.avg_pool(x, "POOL", net.layers[x].shape[0])
    x = net.dense(net.dropout(x, "DROPOUT"), "FC", CLASSES)
    net.like(x, "SOFTMAX", "softmax")
    return Network(tuple(net.layers))


def _module(net: Building, x: int, name: str, branches: Sequence[str]) -> int:
    ends = []
    fork = net.like(x, f"FORK{name}", "fork")
    for number, branch in enumerate(branches):
        sides = [fork]
        for place, step in enumerate(branch.split()):
            here = f"{name}_{number}_{place}"
            both = step.split("+")
            before = sides[0] if len(both) == 1 else net.like(sides[0], f"FORK{here}", "fork")
            sides = [
                _step(net, before, f"{here}{letter}", one)
                for letter, one in zip("ab", both, strict=False)
            ]
        ends += sides
    return net.concat(f"CONCAT{name}", ends)


def _step(net: Building, x: int, name: str, step: str) -> int:
    """ "v" and a stride: without padding."""
    what, _, stride = step.partition("/")
    if what == "max":
        return net.max_pool(x, f"POOL{name}", 3, int(stride))
    if what == "avg":
        return net.avg_pool(x, f"POOL{name}", 3, padding="SAME")
    channels, height, width = map(int, re.split("[@x]", what.rstrip("v")))
    padding: Padding = "VALID" if stride or what.endswith("v") else "SAME"
    x = net.bare(x, f"CONV{name}", channels, (height, width), int(stride or 1), padding)
    return net.like(net.like(x, f"BN{name}", "batch_norm"), f"RELU{name}", "relu")
