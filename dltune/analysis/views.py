"""Ops whose result is the memory of their first input."""

from __future__ import annotations

VIEWS = frozenset(
    {
        *("Arg", "Retval", "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims"),
        *("ReadVariableOp", "StopGradient", "PreventGradient", "EnsureShape", "AssignVariableOp"),
        *("NoOp", "Snapshot"),
    }
)
