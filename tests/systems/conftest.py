"""Lets tests of systems import the modules in `tests/systems` and in the folder of each system."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent

sys.path += [str(HERE), *(str(folder) for folder in sorted(HERE.iterdir()) if folder.is_dir())]
