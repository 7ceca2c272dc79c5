"""Lets these tests import the modules beside them: the slow parser, the writer, the makers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
