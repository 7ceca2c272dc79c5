"""Gradients on a mesh beside those of one device, in real processes."""

from __future__ import annotations

import itertools

import jaxes
import pytest

from dltune.base.errors import UsageError
from dltune.systems.parallelism.enforce import differences, require_same, suspects

pytestmark = [jaxes.needs_jax, pytest.mark.jax]
Axes = tuple[int | None, ...]


def plan(mesh: tuple[int, ...], convs: list[Axes], dense: Axes) -> dict:
    """Convolutions one after the other, and a dense layer."""
    operators = [
        {"name": f"conv{n}", "type": "conv 3x3/1 relu", "rank": 4, "axes": list(axes)}
        for n, axes in enumerate(convs)
    ]
    operators.append({"name": "dense", "type": "dense", "rank": 2, "axes": list(dense)})
    for one in operators:
        one |= {"parameter": one["rank"] - 1, "weights": one["name"]}
    return {"mesh": list(mesh), "operators": operators}


@pytest.mark.parametrize(
    ("mesh", "convs", "dense"),
    [
        ((2,), [(1,), (2,), (3,)], (1,)),
        ((4,), [(1,), (3,)], (1,)),
        ((2, 2), [(0, 1), (0, 3)], (0, 1)),
    ],
)
def test_a_mesh_gives_the_gradients_of_one_device(
    mesh: tuple[int, ...], convs: list[Axes], dense: Axes
) -> None:
    assert differences(plan(mesh, convs, dense), python=jaxes.PYTHON) == []


def test_gradients_that_are_wrong_are_seen() -> None:
    """Those of a convolution divided in height, with an idle axis: XLA's of JAX 0.10 doubles them.
    A version that does not has nothing to be seen."""
    idle = plan((2, 2), [(1, None)], (0, 1))
    assert suspects(idle) == [(0, 0)]
    said = ""
    try:
        require_same(idle, suspects(idle), jaxes.PYTHON)
    except UsageError as error:
        said = str(error)
    if not said:
        pytest.skip("this JAX has these gradients right")
    assert "'conv0' and 'conv0' have wrong gradients" in said
    assert "XLA makes those of conv0/kernel 1." in said


def test_only_convolutions_with_an_idle_axis_are_suspects() -> None:
    every = [*itertools.product([0, 1, 2, 3, None], repeat=2)]
    found = suspects(plan((2, 2), every, (0, 1)))
    assert {every[n] for n, _ in found} == {(1, None), (2, None), (None, 1), (None, 2)}
