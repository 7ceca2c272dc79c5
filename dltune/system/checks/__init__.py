"""What `dltune doctor` looks at, one file per subject. Nothing is changed, nothing is imported
that is looked for."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["ok", "limited", "missing"]


@dataclass(frozen=True)
class Check:
    """One line of the report.

    `found`: what is there. `remedy`: the one thing to do, None when all is well. `required`:
    neither profile nor run works while this is missing.
    """

    name: str
    state: State
    found: str
    remedy: str | None = None
    required: bool = False


def folder_of(package: str) -> Path | None:
    """Where a package of this Python is, which is not imported."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    # without origin: just a folder of that name
    return Path(spec.origin).parent if spec and spec.origin else None
