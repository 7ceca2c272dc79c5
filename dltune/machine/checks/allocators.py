"""Allocators of memory that a job can be given in place of glibc's."""

from __future__ import annotations

import os

from dltune.machine import allocators as installed
from dltune.machine.checks import Check


def allocators() -> Check:
    """Which are installed, and load."""
    found = [name for name in installed.SONAMES if installed.find(name, os.environ)]
    version = installed.glibc()
    own = f"glibc {version[0]}.{version[1]}" if version else "the C library's own"
    told = ", ".join([own, *found])
    if found:
        return Check("allocators", "ok", told)
    return Check(
        "allocators",
        "limited",
        f"{told} only",
        f"for dltune tune to try another: install {installed.PACKAGES['jemalloc']}",
    )
