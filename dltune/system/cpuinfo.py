"""What the CPU is and can do, as the kernel names it."""

from __future__ import annotations

import functools
from pathlib import Path

from dltune.system.proc.entry import text


def first(root: Path = Path("/")) -> dict[str, str]:
    """What /proc/cpuinfo tells of the first CPU; empty where it tells none."""
    cpu, _, _ = text(root / "proc/cpuinfo").partition("\n\n")
    pairs = (line.partition(":") for line in cpu.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@functools.lru_cache
def flags() -> frozenset[str]:
    """What the first CPU can do; empty where the kernel tells nothing."""
    cpu = first()
    return frozenset((cpu.get("flags") or cpu.get("Features", "")).split())
