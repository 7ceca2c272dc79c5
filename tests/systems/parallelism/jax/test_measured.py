"""Costs of operators, measured by JAX."""

from __future__ import annotations

import functools

import jaxes
import pytest

from dltune.systems.parallelism.model.problem import mesh, part, soap
from dltune.systems.parallelism.networks import lenet
from dltune.systems.parallelism.times import costs

pytestmark = [jaxes.needs_jax, pytest.mark.jax]


def test_every_configuration_has_its_costs() -> None:
    graph = lenet(4)
    found = costs(graph, 2, soap, jaxes.PYTHON)
    assert found.update > 0
    for operator in graph.operators:
        for one in soap(operator, 2):
            forward, backward = found(operator, part(graph, operator, one.degrees), None)
            assert (forward > 0) == bool(operator.inputs)
            assert backward >= 0


def test_like_shapes_are_measured_once() -> None:
    graph = lenet(4)
    found = costs(graph, 2, functools.partial(mesh_of_two), jaxes.PYTHON)
    # undivided and replicated are alike
    assert len(found.times) < sum(len(mesh(one, (2,))) for one in graph.operators)


def mesh_of_two(operator, devices):
    return mesh(operator, (devices,))
