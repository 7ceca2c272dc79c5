"""LeNet, AlexNet and VGG: chains of layers."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.simulate.networks.building import CLASSES, Building
from dltune.simulate.networks.layer import Layer, Network


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
