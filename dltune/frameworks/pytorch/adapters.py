"""What is asked of the files in `inject/`, in the answer to an interpreter that starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dltune.extensions import Hook

INJECTED = Path(__file__).resolve().parent / "inject"


def memory_adapter(orders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`orders`: what steps give up; None: one is to be recorded."""
    return Hook("_dltune_torch_memory", (str(INJECTED),), ("torch",)).under(orders or {})
