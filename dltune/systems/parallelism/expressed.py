"""The section as JAX, Keras and PyTorch can take it: every operator on all devices of one mesh."""

from __future__ import annotations

from typing import Any

from dltune.base.errors import UsageError
from dltune.systems.parallelism.schemas.strategy import Divided, Parallelism

_REMEDY = "plan with --for keras, --for jax or --for torch"


def expressed(section: Parallelism) -> dict[str, Any]:
    """Return the input of `inject/_dltune_layouts.py`.

    Raises UsageError where operators are on blocks of devices, or share weights that they divide
    differently.
    """
    mesh = section.mesh or (len(section.devices),)
    if not section.mesh and len(section.devices) > 1:
        raise UsageError(
            "the plan places operators on different blocks of devices, but Keras, JAX and PyTorch "
            "can only place every operator on one mesh of all devices",
            remedy=_REMEDY,
        )
    owners: dict[str, Divided] = {}
    for one in section.operators:
        first = owners.setdefault(one.weights, one) if one.weights else one
        if _divided(first) != _divided(one):
            raise UsageError(
                f"the operators {first.name!r} and {one.name!r} share the weights "
                f"{one.weights!r} but divide them differently, which is not possible on a mesh",
                remedy=_REMEDY,
            )
    operators = [
        {
            "name": one.name,
            "type": one.type,
            "rank": len(one.dimensions),
            "axes": list(one.axes) or [None] * len(mesh),
            "parameter": one.parameter,
            "weights": one.weights,
        }
        for one in section.operators
    ]
    return {"mesh": list(mesh), "operators": operators}


def _divided(one: Divided) -> tuple[int, ...]:
    """The axes of the mesh over which its weights are divided."""
    return tuple(n for n, at in enumerate(one.axes) if at is not None and at == one.parameter)
