"""Transfer of op times, and of whole workloads, to a machine on which they were not measured.

`transferred` carries a workload to another machine. The paper's machine has constants of its own
(docs/research/knl.md); for any other machine, a `Law` is fitted to the measured times of each op.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dltune.analysis import keys
from dltune.schemas.machine import Machine
from dltune.simulate.op_time import Case, Curve, all_cases

if TYPE_CHECKING:
    from dltune.simulate.workload import Workload


@dataclass(frozen=True)
class Law:
    """An op's time on thread counts that nobody measured, by a stated law.

        T(n) = serial + parallel / n + spawn * n

    Amdahl's law with a cost for each thread: the simplest curve that falls and rises again, as all
    of the paper's op times do ("the variance of execution time is shown as a convex function",
    III-C). Its minimum is at n = sqrt(parallel / spawn).

    The parts are the seconds on one thread that cannot be divided, those that can, and the seconds
    per thread.
    """

    serial: float
    parallel: float
    spawn: float

    def seconds(self, threads: int) -> float:
        return self.serial + self.parallel / threads + self.spawn * threads

    @property
    def optimum(self) -> float:
        """The thread count at the minimum; infinite when threads cost nothing."""
        return math.sqrt(self.parallel / self.spawn) if self.spawn > 0 else math.inf

    def curve(self, cases: Iterable[Case]) -> Curve:
        """The law at these cases; it does not tell placements apart."""
        return Curve.of({(n, placement): self.seconds(n) for n, placement in cases})


def fitted(samples: Sequence[tuple[int, float]]) -> Law:
    """The law nearest to (threads, seconds) samples: least relative squares, no negative part.

    With samples at one count, all is parallel; with two, threads cost nothing unless the time rose.
    Raises ValueError when there is no sample, or one with no time.
    """
    if not samples or any(seconds <= 0 for _, seconds in samples):
        raise ValueError("a law needs samples with times above 0")
    counts = len({n for n, _ in samples})
    # which parts (by index) may stand in the law, the simplest first
    shapes = (
        [(1,)]
        if counts == 1
        else itertools.chain.from_iterable(
            itertools.combinations(range(3), size) for size in range(1, min(counts, 3) + 1)
        )
    )
    best: tuple[float, Law] | None = None
    for shape in shapes:
        parts = _least_squares(samples, shape)
        if parts is None or min(parts) < 0:
            continue
        law = Law(*parts)
        error = math.fsum((law.seconds(n) / s - 1) ** 2 for n, s in samples)
        # a shape with fewer parts comes first and stays where more parts explain no more
        if best is None or error < best[0] * (1 - 1e-9) - 1e-15:
            best = (error, law)
    assert best is not None  # a single part always fits without being negative
    return best[1]


def _least_squares(
    samples: Sequence[tuple[int, float]], shape: Sequence[int]
) -> list[float] | None:
    """The three parts, those outside `shape` zero; None when the samples do not determine them."""
    relative = np.array([(1.0 / s, 1.0 / n / s, n / s) for n, s in samples])[:, shape]
    solved, _, rank, _ = np.linalg.lstsq(relative, np.ones(len(samples)), rcond=None)
    if rank < len(shape):
        return None
    parts = np.zeros(3)
    parts[list(shape)] = solved
    return parts.tolist()


# Op times on the paper's machine, from those on another machine (docs/research/knl.md)

KNL_NAME = "Intel Xeon Phi 7250"

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


def knl_curve(kind: str, serial: float, cases: Iterable[Case]) -> Curve:
    """An op's times at `cases`, from its seconds on one thread of the profiled machine."""
    name = family(kind)
    found = law(kind, SPAWN.get(name, SPAWN[None]))
    work = serial * SLOWNESS.get(name, SLOWNESS[None])
    return Curve.of({(n, placement): found.seconds(work, n) for n, placement in cases})


# Workloads, from the machine they were measured on to the one that is planned for


def transferred(workload: Workload, machine: Machine) -> Workload:
    """The workload on `machine`.

    Cores of the measured machine keep its op times. The paper's machine has its own model
    (docs/research/knl.md). On any other, a core is taken to be as fast as where the ops were
    measured, and each op's times follow the `Law` fitted to its measured ones;
    where the measured counts cover the machine they are used as they are.
    """
    measured = workload.machine
    if machine.name == measured.name and len(machine.cores) <= len(measured.cores):
        return dataclasses.replace(workload, machine=machine)
    if machine.name == KNL_NAME:
        return _to_knl(workload, machine)
    count = len(machine.cores)
    cases = all_cases(machine)
    curves: list[Curve | None] = []
    extrapolated = 0
    for op, curve in zip(workload.ops, workload.curves, strict=True):
        samples = [(time.threads, time.min) for time in op.times if time.min > 0]
        covered = max((n for n, _ in samples), default=0)
        if curve is None or covered >= count or not samples:
            curves.append(curve)
            continue
        extrapolated += 1
        curves.append(fitted(samples).curve(cases).scaled(workload.scale))
    remark = (
        f"note: op times were measured on {measured.name}; the plan assumes that a core of "
        f"{machine.name} is as fast"
    )
    if extrapolated:
        remark += (
            f". {extrapolated} ops were not measured on {count} threads: their times are "
            "extrapolated by serial + parallel/n + spawn*n, fitted to the measured times"
        )
    return dataclasses.replace(
        workload,
        machine=machine,
        curves=tuple(curves),
        model=None,
        remarks=(*workload.remarks, remark),
    )


def _to_knl(workload: Workload, machine: Machine) -> Workload:
    """Apply the method of docs/research/knl.md: its laws, its controllable ops, OpenMP's spinning.

    What was found for the measured machine (executor's time, factor, gaps) says nothing there.
    """
    cases = all_cases(machine)
    curves = [
        None if curve is None else knl_curve(op.type, curve.serial / workload.scale, cases)
        for op, curve in zip(workload.ops, workload.curves, strict=True)
    ]
    held = {
        index: len(machine.cores)
        for index, op in enumerate(workload.ops)
        if curves[index] is not None and not controlled(op.type)
    }
    remark = (
        f"note: op times on {machine.name} are modelled from the paper's tables and this profile's "
        f"times on one thread. {len(held)} of {len(workload.ops)} ops keep {len(machine.cores)} "
        "threads, because the paper's runtime could not control them"
    )
    return dataclasses.replace(
        workload,
        machine=machine,
        curves=tuple(curves),
        model=None,
        held=held,
        between=0.0,
        overhead=0.0,
        scale=1.0,
        spinning=True,
        oversubscription=OVERSUBSCRIPTION,
        remarks=(*workload.remarks, remark),
    )
