"""Ways to compute a convolution, and the memory that each needs while it runs: its workspace.

Counted from how they are published, not measured: all reach the same share of a device's peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dltune.simulate.networks.layer import FLOAT, Layer, Network
from dltune.simulate.networks.roofline import Device

_COMPLEX = 2 * FLOAT
# cuDNN transforms no larger pictures in one piece
_LARGEST = 256


@dataclass(frozen=True)
class Algorithm:
    """One pass over a batch: forward, or the gradient to what is read, or to the weights, which
    take alike. `workspace` and `moved` in bytes; `moved`: what it reads and writes in all."""

    name: str
    workspace: int
    flops: float
    moved: float

    def seconds(self, device: Device) -> float:
        """By the roofline, at the device's share of it."""
        return max(self.flops / device.flops, self.moved / device.bandwidth) / device.share


def algorithms(network: Network, layer: Layer, batch: int) -> Iterator[Algorithm]:
    """Of a layer of kind `conv`, those that its window and stride allow.

    *direct*: as a product of matrices that are never laid out (Chetlur et al., "cuDNN: efficient
    primitives for deep learning", 2014). *winograd*: F(2x2, 3x3) in one kernel, for which weights
    are transformed ahead (Lavin and Gray, "Fast algorithms for convolutional neural networks",
    2015). *fft*: pictures, weights and results as spectra, in the next power of two of pixels
    (Mathieu, Henaff and LeCun, "Fast training of convolutional networks through FFTs", 2013).
    """
    read = network.layers[layer.inputs[0]]
    high, wide, depth, channels = layer.parameters[0].shape
    direct = batch * network.forward(layer, training=True)
    bytes = FLOAT * (batch * (read.size + layer.size)) + layer.parameters[0].bytes
    yield Algorithm("direct", 0, direct, bytes)
    # without a stride there is a result for each place of the window, with padding for each pixel
    dense = all(
        given in (had, had - size + 1)
        for had, size, given in zip(read.shape[:2], (high, wide), layer.shape[:2], strict=True)
    )
    if not dense or max(high, wide) == 1:
        return
    if (high, wide) == (3, 3):
        tiles = batch * math.prod(-(-side // 2) for side in layer.shape[:2])
        adding = tiles * (32 * depth + 24 * channels) + 28 * depth * channels
        weights = 16 * FLOAT * depth * channels
        products = 2 * 16 * tiles * depth * channels
        yield Algorithm("winograd", weights, products + adding, bytes + 2 * weights)
    side = 1 << (max(read.shape[0] + high, read.shape[1] + wide) - 2).bit_length()
    if side <= _LARGEST:
        spectra = batch * depth + depth * channels + batch * channels
        bins = side * (side // 2 + 1)
        transforms = 2.5 * side**2 * math.log2(side**2) * spectra
        workspace = _COMPLEX * bins * spectra
        products = 8 * bins * batch * depth * channels
        yield Algorithm("fft", workspace, products + transforms, bytes + 2 * workspace)


def fastest(found: Iterator[Algorithm], free: int, device: Device) -> Algorithm:
    """Of those whose workspace has room in `free` bytes (SuperNeurons, section 3.5); `direct` needs
    none."""
    return min(
        (one for one in found if one.workspace <= max(0, free)),
        key=lambda one: one.seconds(device),
    )
