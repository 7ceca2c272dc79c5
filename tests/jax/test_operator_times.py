"""Operators timed by JAX."""

from __future__ import annotations

import jaxes
import pytest

from dltune.errors import UsageError
from dltune.jax.operator_times import measured
from dltune.jax.operators import Request

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


def test_shapes_that_do_not_fit_are_refused() -> None:
    wrong = Request("add", ((1, 2),), (1, 3))
    with pytest.raises(UsageError, match=r"'add' gives out \(1, 2\)"):
        measured([wrong], jaxes.PYTHON)
