"""How much of a file is in the page cache, and how it is dropped from there.

`cachestat` (Linux 6.5) tells it exactly; it also knows of pages that were there and have been
dropped since. `mincore` is older, and says that everything is resident of a file which the caller
neither owns nor may write (Linux 5.2): such an answer is not taken.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.base.words import size

PAGE = mmap.PAGESIZE
# of all architectures but alpha: system calls since 424 have the same numbers
_CACHESTAT = 451
_LIBRARY = ctypes.CDLL(None, use_errno=True)
# bytes of a file that may stay, or this share of it: pages under writeback, in other CPUs' lists
LEFT, LEFT_SHARE = 1 << 20, 0.02
# seconds that a slow store is given for what it reads ahead, and looks after which nothing changes
PATIENCE, LOOKS = 2.0, 3


@dataclass(frozen=True)
class Cached:
    """Bytes in the page cache; `seen`: with those that were there and have been dropped since, as
    far as the kernel remembers, else the same."""

    now: int
    seen: int


def cached(descriptor: int) -> Cached | None:
    """Of an open plain file; None when neither source tells the truth here."""
    if (told := _cachestat(descriptor)) is not None:
        return told
    if not _owned(descriptor) or (resident := resident_pages(descriptor)) is None:
        return None
    count = sum(resident) * PAGE
    return Cached(count, count)


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
        f"{path} cannot be read cold: {size(left.now)} of it stay in the page cache",
        remedy="stop the processes that have it mapped, or copy a file in memory (tmpfs) to a disk",
    )


def _cachestat(descriptor: int) -> Cached | None:
    everything = (ctypes.c_uint64 * 2)(0, 0)
    result = (ctypes.c_uint64 * 5)()  # cached, dirty, under writeback, evicted, recently so
    done = _LIBRARY.syscall(
        ctypes.c_long(_CACHESTAT), ctypes.c_int(descriptor), everything, result, ctypes.c_uint(0)
    )
    if done != 0:
        return None
    return Cached(result[0] * PAGE, (result[0] + result[3]) * PAGE)


def _owned(descriptor: int) -> bool:
    """Whether the kernel answers mincore truthfully: the owner, and who may write."""
    return os.geteuid() in (0, os.fstat(descriptor).st_uid) or os.access(
        f"/proc/self/fd/{descriptor}", os.W_OK
    )


def resident_pages(descriptor: int) -> bytes | None:
    """A byte for each page of a file, 1 when it is in the page cache. None when it cannot be
    mapped. To be believed of files that the caller owns or may write, see above."""
    length = os.fstat(descriptor).st_size
    if length == 0:
        return b""
    try:
        mapping = mmap.mmap(descriptor, length, flags=mmap.MAP_PRIVATE)  # never written to
    except (OSError, ValueError):
        return None
    with mapping:
        vector = ctypes.create_string_buffer(-(-length // PAGE))
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        done = _LIBRARY.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), vector)
        return bytes(byte & 1 for byte in vector.raw) if done == 0 else None
