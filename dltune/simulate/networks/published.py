"""The networks that TicTac was measured with (its Table 1), as TF-Slim of TensorFlow 1.8 builds
them when it is asked for no more: without the arguments that bring in batch normalisation, so that
every convolution has a bias. Only the units of ResNet v2 ask for it themselves. So does the paper's
own published program, and with it all of the table's parameters, sizes and counts of ops come out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dltune.simulate.networks import chains, inception, resnet
from dltune.simulate.networks.layer import Network


@dataclass(frozen=True)
class Published:
    """`batch`: the table's standard batch size."""

    build: Callable[[], Network]
    batch: int


_50, _101 = (3, 4, 6, 3), (3, 4, 23, 3)
NETWORKS: Mapping[str, Published] = {
    "AlexNet v2": Published(chains.alexnet_v2, 512),
    "Inception v1": Published(inception.inception_v1, 128),
    "Inception v2": Published(inception.inception_v2, 128),
    "Inception v3": Published(inception.inception_v3, 32),
    "ResNet-50 v1": Published(functools.partial(resnet.resnet_v1, _50), 32),
    "ResNet-101 v1": Published(functools.partial(resnet.resnet_v1, _101), 64),
    "ResNet-50 v2": Published(functools.partial(resnet.resnet_v2, _50), 64),
    "ResNet-101 v2": Published(functools.partial(resnet.resnet_v2, _101), 32),
    "VGG-16": Published(chains.vgg_16, 32),
    "VGG-19": Published(chains.vgg_19, 32),
}
