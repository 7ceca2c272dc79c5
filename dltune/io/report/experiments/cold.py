"""A file's pages dropped from the page cache, and whether they are gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dltune.errors import UsageError
from dltune.io.report.cached import cached
from dltune.io.report.shown import size

# bytes of a file that may stay, or this share of it: pages under writeback, in other CPUs' lists
LEFT, LEFT_SHARE = 1 << 20, 0.02
# seconds that a slow store is given for what it reads ahead, and looks after which nothing changes
PATIENCE, LOOKS = 2.0, 3


def drop(path: Path, descriptor: int) -> bool:
    """Drop the pages of an open file. Whether it is known that they are gone; False where the page
    cache tells this user nothing, and reads have to show it.

    Raises UsageError when they stay: another process has them mapped, or the file lies in memory.
    """
    os.fdatasync(descriptor)  # pages that are not written yet would stay
    until = time.monotonic() + PATIENCE
    before, same = None, 0
    while True:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        left = cached(descriptor)
        if left is None:
            return False
        same = same + 1 if left.now == before else 0
        before = left.now
        # what is still being read ahead goes when it has come; what stays as it is stays
        if not left.now or same == LOOKS or time.monotonic() > until:
            break
        time.sleep(0.05)
    if left.now <= max(LEFT, LEFT_SHARE * os.fstat(descriptor).st_size):
        return True
    raise UsageError(
        f"{path} cannot be read cold: {size(left.now)} of it stay in memory",
        remedy="end the processes that have it mapped, or copy it to a disk if it lies in memory",
    )
