from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import pretended

from dltune.bench import turnstile


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pretended.Clock:
    """CLOCK_MONOTONIC in nanoseconds as `turnstile` reads it, moved by hand."""
    made = pretended.Clock()
    monkeypatch.setattr(turnstile.time, "monotonic_ns", made)
    return made
