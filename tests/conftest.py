"""Lets tests import the modules that stand beside this file, such as `synthetic`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
