from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import pretended

from dltune.bench import runner


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pretended.Clock:
    """CLOCK_MONOTONIC in nanoseconds as `runner` reads it, moved by hand."""
    made = pretended.Clock()
    monkeypatch.setattr(runner.time, "monotonic_ns", made)
    return made
