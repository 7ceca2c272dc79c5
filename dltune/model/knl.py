"""Op times on the paper's machine, from those on another one (docs/knl.md states the method)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dltune.model.curve import Case, Curve

NAME = "Intel Xeon Phi 7250"

# Table II (scripts/fit_knl.py): how the cost of a thread grows with an op's work
GROWTH = 0.3
# Table I: four ops of 68 threads at once take 3048 ms where one at a time takes 1382 ms
OVERSUBSCRIPTION = (3048 / 1382 - 1) / 3


@dataclass(frozen=True)
class Family:
    """Constants of the law; works and times in milliseconds, as in the paper's tables."""

    serial: float
    spawn: float

    def milliseconds(self, work: float, threads: int) -> float:
        spawning: float = self.spawn * work**GROWTH * threads
        return work * (self.serial + 1 / threads) + spawning

    def seconds(self, work: float, threads: int) -> float:
        """`work` in seconds on one core; no op takes longer than on one thread."""
        own = self.milliseconds(work * 1e3, threads)
        return min(own, self.milliseconds(work * 1e3, 1)) / 1e3


# Table II (scripts/fit_knl.py); the other families take Conv2D's
CONV2D = Family(serial=0.00029, spawn=0.01390)
FAMILIES = {
    "Conv2DBackpropFilter": Family(serial=0.01104, spawn=0.02107),
    "Conv2DBackpropInput": Family(serial=0.00134, spawn=0.01524),
    "Conv2D": CONV2D,
}

# What TensorFlow 1.9 had in MKL-DNN or MKL form (its mkl_layout_pass.cc, and MatMul and Transpose
# as MKL kernels): the ops that the paper's runtime could control.
CONTROLLED = frozenset(
    {
        *FAMILIES,
        "Add",
        "AddN",
        "AvgPool",
        "AvgPoolGrad",
        "BatchMatMul",
        "BiasAdd",
        "BiasAddGrad",
        "Concat",
        "Elu",
        "EluGrad",
        "FusedBatchNorm",
        "FusedBatchNormGrad",
        "LRN",
        "LRNGrad",
        "MatMul",
        "MaxPool",
        "MaxPoolGrad",
        "Maximum",
        "Mul",
        "Relu",
        "ReluGrad",
        "Softmax",
        "SquaredDifference",
        "Sub",
        "Tanh",
        "TanhGrad",
        "Transpose",
    }
)

# Seconds on a core of the paper's machine per second on the core that was profiled, by family
# (None: all others). Fitted to ResNet-50 by scripts/sim_knl.py --fit, profiled on an AMD EPYC.
SLOWNESS: dict[str | None, float] = {
    "Conv2D": 0.41,
    "Conv2DBackpropFilter": 1.73,
    "Conv2DBackpropInput": 0.974,
    "Mean": 9.37,
    "Mul": 4.36,
    "Sum": 9.14,
    "Tile": 149,
    None: 34.3,
}


def family(kind: str) -> str:
    """An op type of today's TensorFlow by the name that the paper's tables use.

    Prefixes of rewritten kernels (_Fused, _Mkl, Native, Resource) and suffixes (versions, WithBias)
    go.
    """
    name = kind.lstrip("_")
    for prefix in ("Mkl", "Native", "Fused"):
        if name.startswith(prefix) and not name.startswith("FusedBatchNorm"):
            name = name[len(prefix) :]
    return re.sub(r"V\d+$", "", name).removeprefix("Resource").removesuffix("WithBias")


def controlled(kind: str) -> bool:
    """The paper's runtime could change this op's threads."""
    return family(kind) in CONTROLLED


def slowness(kind: str) -> float:
    return SLOWNESS.get(family(kind), SLOWNESS[None])


def curve(kind: str, serial: float, cases: Iterable[Case], slower: float | None = None) -> Curve:
    """An op's times at `cases`, from its seconds on one thread of the profiled machine.

    `slower`: the factor between the machines' cores, where not that of its family.
    """
    law = FAMILIES.get(family(kind), CONV2D)
    work = serial * (slowness(kind) if slower is None else slower)
    return Curve.of({(n, placement): law.seconds(work, n) for n, placement in cases})
