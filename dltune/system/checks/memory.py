"""What memory a job can be given: other allocators than glibc's, and transparent huge pages, which
spare large tensors most of their page faults and TLB misses."""

from __future__ import annotations

import os
from pathlib import Path

from dltune.system import allocators as installed
from dltune.system import pages
from dltune.system.checks import Check


def allocators() -> Check:
    """Which allocators are installed, and load."""
    found = [name for name in installed.SONAMES if installed.find(name, os.environ)]
    version = installed.glibc()
    own = f"glibc {version[0]}.{version[1]}" if version else "the C library's allocator"
    told = ", ".join([own, *found])
    if found:
        return Check("allocators", "ok", told)
    return Check(
        "allocators",
        "limited",
        f"{told} only",
        f"to let dltune tune try another allocator, install {installed.PACKAGES['jemalloc']}",
    )


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
            "transparent huge pages: madvise, so only on request; TensorFlow's allocator does "
            "not request them",
            "set GLIBC_TUNABLES=glibc.malloc.hugetlb=1 for the job (glibc 2.35 or newer)",
        )
    return Check(
        "huge pages",
        "limited",
        f"transparent huge pages: {mode}",
        "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
