"""Which sections JAX and Keras can take."""

from __future__ import annotations

import msgspec
import parallel_plans
import pytest

from dltune.base.errors import UsageError
from dltune.systems.parallelism.emit import expressed


def test_operators_on_a_mesh() -> None:
    found = expressed(parallel_plans.dense())
    assert found["mesh"] == [2]
    assert [one["axes"] for one in found["operators"]] == [[1], [0]]
    assert [one["rank"] for one in found["operators"]] == [2, 2]


def test_blocks_of_devices_cannot_be_expressed() -> None:
    operators = tuple(
        msgspec.structs.replace(one, axes=()) for one in parallel_plans.dense().operators
    )
    blocks = msgspec.structs.replace(
        parallel_plans.dense(), mesh=(), consumer=None, operators=operators
    )
    with pytest.raises(UsageError, match="blocks of devices") as error:
        expressed(blocks)
    assert error.value.remedy == "plan with --for keras, --for jax or --for torch"


def test_weights_divided_in_two_ways_cannot_be_expressed() -> None:
    part = parallel_plans.dense()
    first, second = part.operators
    shared = msgspec.structs.replace(second, weights=first.weights)
    with pytest.raises(UsageError, match="share the weights 'sequential/dense'"):
        expressed(msgspec.structs.replace(part, operators=(first, shared)))


def test_one_device_is_a_mesh() -> None:
    vector = parallel_plans.VECTOR
    alone = parallel_plans.section((), parallel_plans.operator("a", "dense", vector, (), ()))
    found = expressed(alone)
    assert found["mesh"] == [1]
    assert found["operators"][0]["axes"] == [None]
