"""Files that jobs read, and jobs that read them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from watched_jobs import cold


@pytest.fixture
def plain_file(tmp_path: Path) -> Path:
    """32 MiB without a format."""
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(1 << 20) * 32)
    cold(path)
    return path


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python code in a process that says a line when it is ready; ends it with the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            **options,  # type: ignore[call-overload]
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    yield start
    for child in children:
        child.kill()
        with child:
            pass
