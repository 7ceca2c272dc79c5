"""The time of a part of an operator on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dltune.systems.parallelism.schemas.operators import Input, Operator, Operators
from dltune.systems.parallelism.schemas.topology import Kind


@dataclass(frozen=True)
class Part:
    """The largest part that a division leaves. `output`: its positions in each dimension; `inputs`:
    those that it reads of each input; `share`: of the whole output; `weights`: bytes that it
    needs."""

    output: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    share: float
    weights: float
    bytes: int


class Costs(Protocol):
    """Seconds forwards and backwards of an operator's part on a kind of device."""

    def __call__(self, operator: Operator, part: Part, kind: Kind, /) -> tuple[float, float]: ...


def part(graph: Operators, operator: Operator, degrees: Sequence[int]) -> Part:
    output = tuple(-(-d.size // n) for d, n in zip(operator.dimensions, degrees, strict=False))
    inputs = tuple(_read(graph, read, output) for read in operator.inputs)
    whole = math.prod(d.size for d in operator.dimensions)
    weights = 0.0
    if operator.weights is not None:
        divided = 1 if operator.parameter is None else degrees[operator.parameter]
        weights = graph.weights[operator.weights].bytes / divided
    bytes = operator.element * math.prod(output)
    for read, shape in zip(operator.inputs, inputs, strict=True):
        bytes += graph.operators[read.operator].element * math.prod(shape)
    return Part(output, inputs, math.prod(output) / whole, weights, bytes)


def _read(graph: Operators, read: Input, output: Sequence[int]) -> tuple[int, ...]:
    shape = []
    for region, given in zip(read.regions, graph.operators[read.operator].dimensions, strict=True):
        size = region.extent
        if region.of is not None:
            size += (output[region.of] - 1) * region.stride
        shape.append(min(size, given.size))
    return tuple(shape)


def roofline(operator: Operator, part: Part, kind: Kind) -> tuple[float, float]:
    """Return the time of its operations or its bytes at the device's peaks, whichever is more, plus
    the fixed time of every op (Williams, Waterman and Patterson, 2009). An operator that looks up
    rows of weights moves these alone. Backwards the bytes move twice."""
    weights = part.weights if operator.flops else 0.0
    seconds = []
    for flops, passes in ((operator.flops, 1), (operator.backward_flops, 2)):
        work = part.share * flops / kind.flops
        moved = passes * (part.bytes + weights) / kind.bandwidth
        seconds.append(kind.overhead + max(work, moved) / kind.share)
    forward, backward = seconds
    return forward, backward if operator.backward_flops or operator.gradient else 0.0
