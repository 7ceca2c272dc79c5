"""PYTHONPATH for what is started: folders of ours before those that the user has there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

OF_DLTUNE = Path(__file__).resolve().parents[2]  # the same one, however this process came to it


def python_path(*first: Path | str, environment: Mapping[str, str] = os.environ) -> str:
    """These folders, then what `environment` has."""
    inherited = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*map(str, first), *filter(None, inherited)])
