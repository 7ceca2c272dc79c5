"""Residual networks of both versions, as TF-Slim has them: the last unit of a block strides."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.simulate.networks.building import CLASSES, Building
from dltune.simulate.networks.layer import Network


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
