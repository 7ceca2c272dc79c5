"""Costs of operators as JAX takes them on one device of this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata

from dltune.base.errors import UsageError
from dltune.systems.parallelism.jax import profiled_types
from dltune.systems.parallelism.jax.operator_times import Times, measured
from dltune.systems.parallelism.jax.operators import unknown_word
from dltune.systems.parallelism.model.local_times import Measured, requests
from dltune.systems.parallelism.model.problem import Space
from dltune.systems.parallelism.model.request import Request
from dltune.systems.parallelism.schemas.operators import Operators

__all__ = ["Measured", "costs", "framework", "known", "timed", "update"]

_UPDATED = (1024, 1024)  # shape of the weights whose update is timed
_FLOAT = 4


def costs(graph: Operators, devices: int, space: Space, python: str = sys.executable) -> Measured:
    """All operators in all configurations of `space` on so many devices, each type and local shapes
    once, in one process with the threads that it is given. Raises UsageError as
    `operator_times.measured`."""
    wanted = requests(graph, devices, space)
    return Measured(graph, timed(wanted, python), update(python))


def timed(wanted: Sequence[Request], python: str = sys.executable) -> dict[Request, Times]:
    """Return the times of each part; for a profile's part, those of its equivalent in JAX. Raises
    UsageError as `operator_times.measured`."""
    plain = {one: profiled_types.plain(one) for one in wanted}
    distinct = [*dict.fromkeys(plain.values())]
    found = dict(zip(distinct, measured(distinct, python), strict=True))
    return {one: found[own] for one, own in plain.items()}


def known(request: Request) -> bool:
    """True if parts of its type can be timed."""
    return unknown_word(profiled_types.plain(request)) is None


def update(python: str = sys.executable) -> float:
    """Seconds in which a byte of weights is updated: new ones are a sum of two arrays as large."""
    (found,) = measured([Request("add", (_UPDATED, _UPDATED), _UPDATED)], python)
    return found.forward / (_FLOAT * _UPDATED[0] * _UPDATED[1])


def framework() -> str:
    """This Python's JAX and its version. Raises UsageError where there is none."""
    try:
        return f"JAX {metadata.version('jax')}"
    except metadata.PackageNotFoundError:
        raise UsageError(
            "timing operators requires JAX, which is not installed",
            remedy="pip install 'dltune[jax]'",
        ) from None
