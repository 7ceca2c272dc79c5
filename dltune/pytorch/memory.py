"""What is asked inside a job of `inject/_dltune_torch_memory.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

INJECTED = Path(__file__).resolve().parent / "inject"


def memory_adapter(orders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """For the answer to an interpreter that starts. `orders`: what its steps give up; None: a step
    is to be recorded."""
    return {
        "folder": str(INJECTED),
        "module": "_dltune_torch_memory",
        "orders": dict(orders or {}),
    }
