"""Op times on the paper's machine, from those on another machine (docs/research/knl.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dltune.analysis import keys
from dltune.simulate.model.curve import Case, Curve

NAME = "Intel Xeon Phi 7250"

# Table II (scripts/research/fit_knl.py): how the cost of a thread grows with an op's work
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


# Table II (scripts/research/fit_knl.py); the other families take Conv2D's
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
        *("Add", "AddN", "AvgPool", "AvgPoolGrad", "BatchMatMul", "BiasAdd", "BiasAddGrad"),
        *("Concat", "Elu", "EluGrad", "FusedBatchNorm", "FusedBatchNormGrad", "LRN", "LRNGrad"),
        *("MatMul", "MaxPool", "MaxPoolGrad", "Maximum", "Mul", "Relu", "ReluGrad", "Softmax"),
        *("SquaredDifference", "Sub", "Tanh", "TanhGrad", "Transpose"),
    }
)

# Seconds on a core of the paper's machine per second on the core that was profiled, by family
# (None: all others). Fitted to ResNet-50 by scripts/research/sim_knl.py --fit, profiled on an AMD
# EPYC.
SLOWNESS: dict[str | None, float] = {
    "Conv2D": 5.71,
    "Conv2DBackpropFilter": 5.08,
    "Conv2DBackpropInput": 7.89,
    "Mean": 115,
    "Mul": 34.3,
    "Sum": 128,
    "Tile": 1820,
    None: 779,
}

# What is left of Table II's cost of a thread in the small ops of Table VI, by family (None: all
# others). Fitted likewise.
SPAWN: dict[str | None, float] = {
    "Conv2D": 0.309,
    "Conv2DBackpropFilter": 0.576,
    "Conv2DBackpropInput": 0.395,
    "Mean": 0.242,
    "Mul": 0.184,
    "Sum": 0.217,
    "Tile": 0.302,
    None: 0.0271,
}


def family(kind: str) -> str:
    """An op type of today's TensorFlow by the name that the paper's tables use.

    Prefixes of rewritten kernels (_Fused, _Mkl, Native, Resource) and suffixes (versions, WithBias)
    go.
    """
    return keys.family(kind).removeprefix("Resource").removesuffix("WithBias")


def controlled(kind: str) -> bool:
    """The paper's runtime could change this op's threads."""
    return family(kind) in CONTROLLED


def law(kind: str, spawn: float) -> Family:
    """The op type's law, with that factor on its cost of a thread."""
    found = FAMILIES.get(family(kind), CONV2D)
    return Family(found.serial, found.spawn * spawn)


def curve(kind: str, serial: float, cases: Iterable[Case]) -> Curve:
    """An op's times at `cases`, from its seconds on one thread of the profiled machine."""
    name = family(kind)
    found = law(kind, SPAWN.get(name, SPAWN[None]))
    work = serial * SLOWNESS.get(name, SLOWNESS[None])
    return Curve.of({(n, placement): found.seconds(work, n) for n, placement in cases})
