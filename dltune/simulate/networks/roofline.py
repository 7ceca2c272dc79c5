"""How long the ops of a network's step take, by their operations and bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dltune.simulate.graph.csr import Numbers
from dltune.simulate.networks.step import NetworkStep


@dataclass(frozen=True)
class Device:
    """`flops` and `bandwidth`: its peaks, a second, the latter in bytes. `share`: the part of the
    roofline (Williams, Waterman and Patterson, 2009) that ops come to."""

    flops: float
    bandwidth: float
    share: float = 1.0


def seconds(step: NetworkStep, device: Device) -> Numbers:
    """By node, one op at a time: as long as its operations or its bytes take, whichever is more."""
    return np.maximum(step.flops / device.flops, step.moved / device.bandwidth) / device.share
