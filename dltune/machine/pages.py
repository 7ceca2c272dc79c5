"""Transparent huge pages, as the system gives them."""

from __future__ import annotations

import re
from pathlib import Path


def mode(root: Path = Path("/")) -> str | None:
    """`always`, `madvise` or `never`; None when the kernel has none."""
    try:
        text = (root / "sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return None
    return next(iter(re.findall(r"\[(\w+)\]", text)), text.strip())
