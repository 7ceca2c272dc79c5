"""Files that jobs read, and jobs that read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from watched_jobs import cold


@pytest.fixture
def plain_file(tmp_path: Path) -> Path:
    """32 MiB without a format."""
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(1 << 20) * 32)
    cold(path)
    return path
