"""What is asked of the files in `inject/`, in the answer to an interpreter that starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

INJECTED = Path(__file__).resolve().parent / "inject"


def memory_adapter(orders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`orders`: what steps give up; None: one is to be recorded."""
    return _adapter("_dltune_torch_memory", orders or {})


def buckets_adapter(orders: Mapping[str, Any]) -> dict[str, Any]:
    """`orders`: the buckets of models."""
    return _adapter("_dltune_torch_buckets", orders)


def _adapter(module: str, orders: Mapping[str, Any]) -> dict[str, Any]:
    return {"folder": str(INJECTED), "module": module, "orders": dict(orders)}
