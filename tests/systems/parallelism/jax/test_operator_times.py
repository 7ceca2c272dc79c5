"""Operators timed by JAX."""

from __future__ import annotations

import jaxes
import pytest

from dltune.base.errors import UsageError
from dltune.systems.parallelism.jax.operator_times import Request, measured

pytestmark = [jaxes.needs_jax, pytest.mark.jax]

KINDS = [
    Request("conv 3x3/2 bias batch_norm relu", ((2, 17, 17, 4),), (2, 8, 8, 6)),
    Request("conv 3x3/1 relu", ((2, 8, 8, 4),), (2, 8, 8, 6)),
    Request("depthwise 3x3/1", ((2, 8, 8, 4),), (2, 8, 8, 4)),
    Request("max_pool 3x3/2", ((2, 9, 9, 4),), (2, 4, 4, 4)),
    Request("avg_pool 3x3/1", ((2, 9, 9, 4),), (2, 9, 9, 4)),
    Request("dense bias softmax", ((2, 4, 4, 3),), (2, 10)),
    Request("lstm", ((2, 6), (2, 8), (2, 4)), (2, 4)),
    Request("attention", ((2, 6), (2, 5, 6)), (2, 6)),
    Request("embedding", ((2, 1),), (2, 6)),
    Request("add relu", ((2, 4, 4, 3), (2, 4, 4, 3)), (2, 4, 4, 3)),
    Request("concat", ((2, 4, 4, 3), (2, 4, 4, 1)), (2, 4, 4, 4)),
    Request("mean", ((2, 4, 4, 3),), (2, 3)),
    Request("concat", ((2, 4, 4, 3), (2, 4, 4, 3)), (2, 4, 4, 3)),
    Request("dense bias gelu", ((2, 5, 2, 3),), (2, 5, 8)),
    Request("dense", ((2, 3), (2, 8)), (2, 8)),
    Request("conv 3x3/1 bias batch_norm", ((2, 6),), (2, 8)),
    Request("einsum bnts,bsnh->btnh", ((2, 5, 12), (2, 3, 5, 5)), (2, 5, 3, 4)),
    Request("layer_norm", ((2, 5, 6),), (2, 5, 6)),
    Request("loss", ((2,), (2, 10)), (2,)),
    Request("loss", ((2, 10), (2, 10)), (2,)),
    Request("multiply tanh", ((2, 6), (2, 6)), (2, 6)),
    Request("input", (), (2, 4, 4, 3)),
    Request("tokens", (), (2, 7)),
]


def test_every_kind_takes_time() -> None:
    found = measured(KINDS, jaxes.PYTHON, repeats=1)
    assert len(found) == len(KINDS)
    for one in found:
        assert one.forward > 0
        assert one.both > 0
        assert one.backward >= 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (Request("add", ((1, 2),), (1, 3)), r"'add' .* has the output \(1, 2\), not \(1, 3\)"),
        (Request("dense", ((3, 5),), (2, 4)), "no rows of equal length"),
        (Request("conv 3x3/1", ((2, 48),), (2, 4, 4, 3)), "width of the input are unknown"),
        (Request("einsum ab,bc->ac", ((2, 3), (4, 5)), (2, 5)), "do not fit the equation"),
        (Request("loss", ((3,),), (2,)), "no input has one row per element"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(wrong: Request, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        measured([wrong], jaxes.PYTHON)
