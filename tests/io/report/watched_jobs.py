"""What tests of watched jobs need: cold files, and patience."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def cold(path: Path) -> None:
    """Drop a file's pages."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def until(condition: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
