from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import pretended

from dltune.turns import step_barrier


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pretended.Clock:
    """CLOCK_MONOTONIC in nanoseconds as `step_barrier` reads it, moved by hand."""
    made = pretended.Clock()
    monkeypatch.setattr(step_barrier.time, "monotonic_ns", made)
    return made
