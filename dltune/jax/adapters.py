"""What is asked of the files in `inject/`, in the answer to an interpreter that starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dltune import parallelism
from dltune.extensions import Hook

INJECTED = Path(__file__).resolve().parent / "inject"


def parallel_adapter(orders: Mapping[str, Any]) -> dict[str, Any]:
    """`orders`: of a rank under a plan on parallelism, as `_dltune_rank.py` has them. It seeds
    Python's random numbers, and so waits for no import."""
    return Hook("_dltune_parallel", (str(INJECTED), str(parallelism.INJECTED))).under(orders)
