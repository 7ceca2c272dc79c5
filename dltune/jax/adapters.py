"""What is asked of the files in `inject/`, in the answer to an interpreter that starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dltune import parallelism

INJECTED = Path(__file__).resolve().parent / "inject"


def parallel_adapter(orders: Mapping[str, Any]) -> dict[str, Any]:
    """`orders`: of a rank under a plan on parallelism, as `_dltune_rank.py` has them."""
    folders = [str(INJECTED), str(parallelism.INJECTED)]
    return {"folders": folders, "module": "_dltune_parallel", "orders": dict(orders)}
