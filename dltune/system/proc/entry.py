"""A small file of /proc or /sys."""

from __future__ import annotations

import os
from pathlib import Path

# bytes: more than any file of fixed form holds; what lists things may be longer, and is not read so
MOST = 1 << 14


def read(path: str) -> bytes | None:
    """At once, so that it is of one moment; None when it is gone or denied."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, MOST)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def text(path: Path) -> str:
    """Of any length, without blanks around it; empty when it is gone or denied."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
