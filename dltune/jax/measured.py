"""Costs of operators as JAX takes them on one device of this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from dltune.documents.operators import Operator, Operators
from dltune.documents.topology import Kind
from dltune.jax.operator_times import Times, measured
from dltune.jax.operators import Request
from dltune.parallelism.costs import Part, part
from dltune.parallelism.problem import Space

_UPDATED = (1024, 1024)  # shape of the weights whose update is timed
_FLOAT = 4


@dataclass(frozen=True)
class Measured:
    """`times`: of each operator at its local shapes; `update`: seconds that a byte of weights takes
    to be updated. Called, it is `costs.Costs`."""

    graph: Operators
    times: Mapping[Request, Times]
    update: float

    def __call__(self, operator: Operator, part: Part, _: Kind) -> tuple[float, float]:
        if not operator.inputs:
            return 0.0, 0.0  # the step's data are there
        times = self.times[_request(self.graph, operator, part)]
        return times.forward, times.backward


def costs(graph: Operators, devices: int, space: Space, python: str = sys.executable) -> Measured:
    """All operators in all configurations of `space` on so many devices, each type and local shapes
    once, in one process with the threads that it is given. Raises UsageError as
    `operator_times.measured`."""
    wanted: dict[Request, None] = {}
    for operator in graph.operators:
        if not operator.inputs:
            continue
        for configuration in space(operator, devices):
            largest = part(graph, operator, configuration.degrees)
            wanted[_request(graph, operator, largest)] = None
    # new weights are a sum of two arrays as large
    update = Request("add", (_UPDATED, _UPDATED), _UPDATED)
    *times, updated = measured([*wanted, update], python)
    bytes = _FLOAT * _UPDATED[0] * _UPDATED[1]
    return Measured(graph, dict(zip(wanted, times, strict=True)), updated.forward / bytes)


def _request(graph: Operators, operator: Operator, largest: Part) -> Request:
    data = not any(graph.operators[read.operator].gradient for read in operator.inputs)
    return Request(operator.type, largest.inputs, largest.output, data)
