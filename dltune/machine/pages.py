"""Transparent huge pages, as the system gives them."""

from __future__ import annotations

import re
from pathlib import Path

from dltune.proc.entry import text


def mode(root: Path = Path("/")) -> str | None:
    """`always`, `madvise` or `never`; None when the kernel has none."""
    modes = text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    return next(iter(re.findall(r"\[(\w+)\]", modes)), modes) or None
