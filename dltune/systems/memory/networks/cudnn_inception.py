"""Inception-v4 as layers of cuDNN, each convolution normalised, modules between a fork and a
concatenation. Branches are written as in `inception.py`; here no convolution has a bias."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dltune.simulate.architectures import CLASSES, Building, Padding
from dltune.simulate.networks import Network

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
    residual connections on learning", 2016."""
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
