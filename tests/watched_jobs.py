"""What tests of watched jobs need: cold files, and patience."""

from __future__ import annotations

import os
from pathlib import Path


def cold(path: Path) -> None:
    """Drop a file's pages."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
