"""Pages of memory: transparent huge ones, as the system gives them, and what a fault of the usual
ones costs here: a few hundred nanoseconds on bare metal, several times that in most virtual
machines, where the hypervisor's page tables are walked too."""

from __future__ import annotations

import contextlib
import mmap
import re
import time
from pathlib import Path

from dltune.system.proc.entry import text

PAGES, TURNS = 1024, 7


def mode(root: Path = Path("/")) -> str | None:
    """`always`, `madvise` or `never`; None when the kernel has none."""
    modes = text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    return next(iter(re.findall(r"\[(\w+)\]", modes)), modes) or None


def fault_seconds() -> float:
    """Seconds that the first write to a fresh page takes more than the second; of each the least
    of TURNS, because other work only ever adds to it. Pages are of the usual size, not huge."""
    turns = [_turn() for _ in range(TURNS)]
    first, again = min(first for first, _ in turns), min(again for _, again in turns)
    return max(0.0, first - again) / PAGES


def _turn() -> tuple[float, float]:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        return _touch(memory), _touch(memory)


def _touch(memory: mmap.mmap) -> float:
    began = time.perf_counter()
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    return time.perf_counter() - began
