"""Speeds of ops on a rank's part of this machine's cores, by JAX."""

from __future__ import annotations

import sys

from dltune.systems.parallelism.jax import portion
from dltune.systems.parallelism.jax.operator_times import measured
from dltune.systems.parallelism.jax.operators import Request
from dltune.systems.parallelism.schemas.topology import Kind

_SIDE = 1024
_FLOAT = 4


def kind(name: str, ranks: int, python: str = sys.executable) -> Kind:
    """Return the kind for so many ranks, each on as many of the cores that this process can use:
    operations a second of a product of two square matrices, bytes a second of a sum of two. Raises
    UsageError as `operator_times.measured`."""
    square = (_SIDE, _SIDE)
    product = Request("dense", (square,), square, data=True)
    total = Request("add", (square, square), square)
    with portion.cores(ranks):
        dense, added = measured([product, total], python)
    return Kind(
        name,
        flops=2 * _SIDE**3 / dense.forward,
        bandwidth=3 * _FLOAT * _SIDE**2 / added.forward,
        source=f"Measured with JAX on one of {ranks} equal parts of the cores: the product and the "
        f"sum of two {_SIDE} x {_SIDE} matrices of 32-bit floats.",
    )
