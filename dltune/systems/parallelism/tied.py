"""Operators that learn the same weights, divided so that these are: a mesh keeps a weight in one
way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import Problem, Strategy
from dltune.systems.parallelism.written import axes


def tied(
    problem: Problem, engine: Engine, strategy: Strategy, shape: Sequence[int]
) -> tuple[Strategy, int]:
    """The strategy on a mesh of this shape, and its nanoseconds. Operators that would divide the
    weights that they share differently all get that configuration with which a step is the
    shortest."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, operator in enumerate(problem.graph.operators):
        if operator.weights is not None:
            groups[operator.weights].append(number)
    time = engine.simulate(strategy)
    for members in groups.values():
        if len({_divided(problem, strategy, number, shape) for number in members}) > 1:
            time, strategy = min(
                (engine.simulate(changed), changed)
                for changed in _alike(problem, strategy, members)
            )
    return strategy, time


def _divided(problem: Problem, strategy: Strategy, number: int, shape: Sequence[int]) -> object:
    """Return, for each of the mesh's axes, True if it divides the operator's weights."""
    parameter = problem.graph.operators[number].parameter
    over = axes(problem.configuration(strategy, number), shape)
    return tuple(parameter is not None and axis == parameter for axis in over)


def _alike(problem: Problem, strategy: Strategy, members: Sequence[int]) -> list[Strategy]:
    """Return the strategies with each configuration that all members can have; all devices
    computing the same is one."""
    places = [
        {configuration: place for place, configuration in enumerate(problem.catalogs[number])}
        for number in members
    ]
    found = []
    for configuration in places[0]:
        if all(configuration in one for one in places):
            changed = list(strategy)
            for number, one in zip(members, places, strict=True):
                changed[number] = one[configuration]
            found.append(tuple(changed))
    return found
