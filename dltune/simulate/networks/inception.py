"""Inception networks of three versions: modules of branches.

A branch is written as its steps: "96@3x3/2" is a convolution to 96 channels with a 3x3 window and
stride 2, "max" and "avg" are 3x3 pools, "+" stands between convolutions that read the same and are
put side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dltune.simulate.networks.building import CLASSES, Building, Padding
from dltune.simulate.networks.layer import Network

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
    return _classified(net, x)


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
    return _classified(net, x)


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
    return _classified(net, x)


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


def _classified(net: Building, x: int) -> Network:
    x = net.avg_pool(x, "pool", net.layers[x].shape[0])
    x = net.dropout(x, "dropout")
    return net.network(net.conv(x, "logits", CLASSES, 1, relu=False))
