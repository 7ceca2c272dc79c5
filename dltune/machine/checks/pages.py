"""Transparent huge pages, which spare large tensors most of their page faults and TLB misses."""

from __future__ import annotations

from pathlib import Path

from dltune.machine import pages
from dltune.machine.checks import Check


def huge_pages(root: Path = Path("/")) -> Check:
    """The mode of transparent huge pages."""
    mode = pages.mode(root)
    if mode is None:
        return Check(
            "huge pages",
            "missing",
            "the kernel has no transparent huge pages",
            "use a kernel built with CONFIG_TRANSPARENT_HUGEPAGE",
        )
    if mode == "always":
        return Check("huge pages", "ok", "transparent huge pages: always")
    if mode == "madvise":
        return Check(
            "huge pages",
            "limited",
            "transparent huge pages: madvise, which TensorFlow's allocator does not ask for",
            "set GLIBC_TUNABLES=glibc.malloc.hugetlb=1 for the job (glibc 2.35 or newer)",
        )
    return Check(
        "huge pages",
        "limited",
        f"transparent huge pages: {mode}",
        "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
