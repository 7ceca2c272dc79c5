"""The model and features of the CPU, as the kernel names them."""

from __future__ import annotations

import functools
from pathlib import Path

from dltune.system.proc.entry import text


def first(root: Path = Path("/")) -> dict[str, str]:
    """Return the first CPU's entries in /proc/cpuinfo; empty if there are none."""
    cpu, _, _ = text(root / "proc/cpuinfo").partition("\n\n")
    pairs = (line.partition(":") for line in cpu.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@functools.lru_cache
def flags() -> frozenset[str]:
    """Return the first CPU's features; empty if the kernel does not report them."""
    cpu = first()
    return frozenset((cpu.get("flags") or cpu.get("Features", "")).split())
