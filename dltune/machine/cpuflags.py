"""What the CPU can do, as the kernel names it."""

from __future__ import annotations

import functools
import re
from pathlib import Path


@functools.lru_cache
def here(root: Path = Path("/")) -> frozenset[str]:
    """The flags of the first CPU in /proc/cpuinfo; empty where it tells none."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return frozenset()
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.M)
    return frozenset(match[1].split()) if match else frozenset()
