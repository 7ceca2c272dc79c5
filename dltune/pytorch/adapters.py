"""What is asked of the files in `inject/`, in the answer to an interpreter that starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dltune import parallelism

INJECTED = Path(__file__).resolve().parent / "inject"


def memory_adapter(orders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`orders`: what steps give up; None: one is to be recorded."""
    return _adapter("_dltune_torch_memory", orders or {})


def buckets_adapter(orders: Mapping[str, Any]) -> dict[str, Any]:
    """`orders`: the buckets of models."""
    return _adapter("_dltune_torch_buckets", orders)


def parallel_adapter(orders: Mapping[str, Any]) -> dict[str, Any]:
    """`orders`: of a rank under a plan on parallelism, as `_dltune_rank.py` has them."""
    return _adapter("_dltune_torch_parallel", orders, parallelism.INJECTED)


def _adapter(module: str, orders: Mapping[str, Any], *shared: Path) -> dict[str, Any]:
    folders = [str(INJECTED), *map(str, shared)]
    return {"folders": folders, "module": module, "orders": dict(orders)}
