"""Strategies as plans hold them."""

from __future__ import annotations

import itertools
from random import Random

import divided
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.systems.parallelism.decide import decoded, encoded, space
from dltune.systems.parallelism.model.problem import Problem, problem, roofline
from dltune.systems.parallelism.schemas.strategy import Parallelism

SHAPES = ((), (4,), (2, 2), (8,), (2, 4), (4, 2), (2, 2, 2), (12,), (2, 3, 2))


def posed(shape: tuple[int, ...]) -> Problem:
    count = 4
    for at, size in enumerate(shape):
        count = size if at == 0 else count * size
    cluster = divided.cluster(2, count // 2)
    return problem(
        divided.network(), cluster, space(cluster, shape, "jax" if shape else None), roofline
    )


POSED = {shape: posed(shape) for shape in SHAPES}


def section(whole: Problem, shape: tuple[int, ...], strategy: tuple[int, ...]) -> Parallelism:
    return Parallelism(
        network="n",
        topology="t",
        digests=("", ""),
        devices=tuple(device.name for device in whole.topology.devices),
        mesh=shape,
        operators=tuple(encoded(whole, strategy, shape)),
        seconds=0.0,
        compute=0.0,
        bytes=0,
        baselines=(),
        proposals=0,
        searched=0.0,
    )


@given(st.sampled_from(SHAPES), st.randoms(use_true_random=False))
def test_what_is_written_is_read_as_it_was(shape: tuple[int, ...], random: Random) -> None:
    whole = POSED[shape]
    strategy = tuple(random.randrange(len(catalog)) for catalog in whole.catalogs)
    assert decoded(section(whole, shape, strategy), whole) == strategy


@given(st.sampled_from(SHAPES[1:]), st.randoms(use_true_random=False))
def test_axes_say_which_part_each_device_of_the_mesh_has(
    shape: tuple[int, ...], random: Random
) -> None:
    whole = POSED[shape]
    strategy = tuple(random.randrange(len(catalog)) for catalog in whole.catalogs)
    for one in section(whole, shape, strategy).operators:
        parts = itertools.product(*map(range, one.degrees), range(one.replicas))
        on = dict(zip(one.devices, parts, strict=True))
        for device, at in enumerate(itertools.product(*map(range, shape))):
            for dimension in range(len(one.degrees)):
                place = 0
                for axis, divides in enumerate(one.axes):
                    if divides == dimension:
                        place = place * shape[axis] + at[axis]
                assert on[device][dimension] == place


def test_what_no_configuration_is_like_is_refused() -> None:
    whole = POSED[()]
    found = section(whole, (), (0,) * len(whole.catalogs))
    first, *rest = found.operators
    turned = msgspec.structs.replace(first, degrees=(2, 1), devices=(0, 3))
    for operators in ((turned, *rest), tuple(rest)):
        other = msgspec.structs.replace(found, operators=operators)
        with pytest.raises(UsageError, match="does not divide the operator 'data', or divides it"):
            decoded(other, whole)
