"""Strategies that people give, from which the search starts (paper, section 8.2.1)."""

from __future__ import annotations

import random as chance
from collections.abc import Callable

from dltune.systems.parallelism.model.configurations import Configuration, sample
from dltune.systems.parallelism.model.problem import Problem, Strategy
from dltune.systems.parallelism.schemas.operators import Operator

Preference = Callable[[int, Operator, Configuration], tuple[float, ...]]


def data_parallel(problem: Problem) -> Strategy:
    """Every operator divided by samples over as many devices as can be."""

    def preference(_: int, operator: Operator, one: Configuration) -> tuple[float, ...]:
        return _by_samples(operator, one), one.tasks, -one.start

    return _preferred(problem, preference)


def single(problem: Problem) -> Strategy:
    """Put all on the first device, or where an operator cannot be, on as few as possible."""

    def preference(_: int, __: Operator, one: Configuration) -> tuple[float, ...]:
        return -one.tasks, -one.parts, -one.start

    return _preferred(problem, preference)


def expert(problem: Problem) -> Strategy:
    """Return the usual strategy of experts: dense layers of a network of convolutions are divided
    by their weights, all else by samples (Krizhevsky, arXiv 1404.5997); in a recurrent network
    every host has separate samples, and within it each layer is on one device (Wu et al., arXiv
    1609.08144)."""
    graph, topology = problem.graph, problem.topology
    blocks = {name: n for n, name in enumerate({o.block: 0 for o in graph.operators if o.block})}
    hosts = len({device.host for device in topology.devices})
    each = problem.devices // hosts

    def recurrent(at: int, operator: Operator, one: Configuration) -> tuple[float, ...]:
        here = one.start % each == blocks.get(operator.block, at) % each
        return (
            _by_samples(operator, one) if one.tasks == hosts else 0.0,
            float(here and (one.stride == each or hosts == 1)),
            -one.tasks,
            -one.start,
        )

    def convolutional(_: int, operator: Operator, one: Configuration) -> tuple[float, ...]:
        dense = operator.parameter is not None and len(operator.dimensions) == 2
        if dense and operator.parameter is not None:
            return float(one.degrees[operator.parameter]), one.tasks, -one.start
        return _by_samples(operator, one), one.tasks, -one.start

    if not blocks:
        return _preferred(problem, convolutional)
    return _preferred(problem, recurrent, lambda at, op: blocks.get(op.block, at) % each)


def random(problem: Problem, seed: int) -> Strategy:
    """Any, as likely as any other."""
    generator = chance.Random(seed)
    return tuple(generator.randrange(len(catalog)) for catalog in problem.catalogs)


def _by_samples(operator: Operator, one: Configuration) -> float:
    dimension = sample(operator)
    degree = 1 if dimension is None else one.degrees[dimension]
    return float(degree if one.parts == degree else 0)


def _preferred(
    problem: Problem,
    preference: Preference,
    like: Callable[[int, Operator], int] = lambda _, __: 0,
) -> Strategy:
    """`like`: operators of one catalog for which this is equal prefer the same."""
    known: dict[tuple[int, int], int] = {}
    strategy = []
    both = zip(problem.graph.operators, problem.catalogs, strict=True)
    for at, (operator, catalog) in enumerate(both):
        key = id(catalog), like(at, operator)
        if key not in known:
            best = max((preference(at, operator, c), -n) for n, c in enumerate(catalog))
            known[key] = -int(best[1])
        strategy.append(known[key])
    return tuple(strategy)
