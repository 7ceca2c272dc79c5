"""A strategy in the form of a plan, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dltune.base.errors import UsageError
from dltune.systems.parallelism.model.configurations import REPLICA, Configuration
from dltune.systems.parallelism.model.problem import Problem, Strategy
from dltune.systems.parallelism.schemas.operators import MOST_DIMENSIONS, Operator
from dltune.systems.parallelism.schemas.strategy import Divided, Parallelism


def written(problem: Problem, strategy: Strategy, shape: Sequence[int]) -> Iterator[Divided]:
    """Each operator; `shape`: of the mesh, empty where there is none."""
    devices: dict[Configuration, tuple[int, ...]] = {}
    for number, operator in enumerate(problem.graph.operators):
        chosen = problem.configuration(strategy, number)
        if chosen not in devices:
            devices[chosen] = tuple(chosen.devices(problem.devices))
        weights = operator.weights
        yield Divided(
            name=operator.name,
            type=operator.type,
            dimensions=tuple(dimension.name for dimension in operator.dimensions),
            degrees=chosen.degrees[: len(operator.dimensions)],
            replicas=chosen.replicas,
            devices=devices[chosen],
            parameter=operator.parameter,
            weights="" if weights is None else problem.graph.weights[weights].name,
            axes=axes(chosen, shape),
            block=operator.block,
        )


def axes(chosen: Configuration, shape: Sequence[int]) -> tuple[int | None, ...]:
    """For each axis of a mesh the dimension that it divides, None where its devices compute the
    same; of a configuration on such a mesh."""
    sizes = (*chosen.degrees, chosen.replicas)
    divided = [axis for axis in chosen.order if sizes[axis] > 1]
    found: list[int | None] = []
    left = 1
    for size in shape:
        if left == 1:  # an axis divides one dimension; several neighbours can divide it
            axis = divided.pop(0)
            left = sizes[axis]
        left //= size
        found.append(None if axis == REPLICA else axis)
    return tuple(found)


def read(section: Parallelism, problem: Problem) -> Strategy:
    """Return the strategy, of the same network and devices. Raises UsageError when an operator is
    divided as none of its configurations has it."""
    operators = {one.name: one for one in section.operators}
    places: dict[tuple[object, ...], int | None] = {}
    strategy = []
    for operator, catalog in zip(problem.graph.operators, problem.catalogs, strict=True):
        one = operators.get(operator.name)
        key = (id(catalog), *((one.degrees, one.replicas, one.devices) if one else ()))
        if key not in places:
            places[key] = _place(one, catalog, problem.devices) if one else None
        place = places[key]
        if place is None:
            raise UsageError(_refused(operator), remedy="make a new plan")
        strategy.append(place)
    return tuple(strategy)


def _refused(operator: Operator) -> str:
    return (
        f"the plan does not divide the operator {operator.name!r}, or divides it in a way that its "
        "dimensions or the devices do not allow"
    )


def _place(one: Divided, catalog: Sequence[Configuration], count: int) -> int | None:
    degrees = (*one.degrees, *[1] * (MOST_DIMENSIONS - len(one.degrees)))
    alike = (
        place
        for place, configuration in enumerate(catalog)
        if (configuration.degrees, configuration.replicas) == (degrees, one.replicas)
        and configuration.devices(count) == [*one.devices]
    )
    return next(alike, None)
