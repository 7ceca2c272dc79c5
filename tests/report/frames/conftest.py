"""Lets the tests here import the documents made for the report's tests, and what stands here."""

from __future__ import annotations

import sys
from pathlib import Path

here = Path(__file__).parent
sys.path += [str(here), str(here.parent / "report")]
