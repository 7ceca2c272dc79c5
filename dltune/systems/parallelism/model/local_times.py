"""Times of parts of operators, measured once for each type with its local shapes (FlexFlow's paper,
section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dltune.systems.parallelism.model.costs import Part, part
from dltune.systems.parallelism.model.problem import Space
from dltune.systems.parallelism.model.request import Request
from dltune.systems.parallelism.schemas.operator_times import OperatorTimes, PartTime
from dltune.systems.parallelism.schemas.operators import Operator, Operators
from dltune.systems.parallelism.schemas.topology import Kind


class Seconds(Protocol):
    @property
    def forward(self) -> float: ...
    @property
    def backward(self) -> float: ...


@dataclass(frozen=True)
class Measured:
    """`times`: of each part that `requests` has; `update`: seconds that a byte of weights takes to
    be updated. Called, it is `costs.Costs`, for devices of one kind."""

    graph: Operators
    times: Mapping[Request, Seconds]
    update: float

    def __call__(self, operator: Operator, part: Part, _: Kind) -> tuple[float, float]:
        if not operator.inputs:
            return 0.0, 0.0  # the step's data are there
        times = self.times[_request(self.graph, operator, part)]
        return times.forward, times.backward


def measured(graph: Operators, found: OperatorTimes) -> Measured:
    """Costs of a document."""
    return Measured(graph, by_request(found), found.update)


def by_request(found: OperatorTimes) -> dict[Request, PartTime]:
    return {Request(one.type, one.inputs, one.output, one.data): one for one in found.parts}


def requests(graph: Operators, devices: int, space: Space) -> list[Request]:
    """Return all parts into which the configurations of `space` divide operators on so many
    devices, those that are alike once. Operators without inputs (the data that a step receives)
    have none."""
    wanted: dict[Request, None] = {}
    for operator in graph.operators:
        if operator.inputs:
            for degrees in dict.fromkeys(one.degrees for one in space(operator, devices)):
                wanted[_request(graph, operator, part(graph, operator, degrees))] = None
    return [*wanted]


def _request(graph: Operators, operator: Operator, largest: Part) -> Request:
    data = not any(graph.operators[read.operator].gradient for read in operator.inputs)
    return Request(operator.type, largest.inputs, largest.output, data)
