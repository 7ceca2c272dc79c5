"""How much of a file is in the page cache.

`cachestat` (Linux 6.5) tells it exactly; it also knows of pages that were there and have been
dropped since. `mincore` is older, and says that everything is resident of a file which the caller
neither owns nor may write (Linux 5.2): such an answer is not taken.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass

PAGE = mmap.PAGESIZE
# of all architectures but alpha: system calls since 424 have the same numbers
_CACHESTAT = 451
_LIBRARY = ctypes.CDLL(None, use_errno=True)


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
    return _mincore(descriptor) if _owned(descriptor) else None


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


def _mincore(descriptor: int) -> Cached | None:
    resident = resident_pages(descriptor)
    if resident is None:
        return None
    count = sum(resident) * PAGE
    return Cached(count, count)


def resident_pages(descriptor: int) -> bytes | None:
    """A byte for each page of a file, 1 when it is in the page cache. None when it cannot be
    mapped. To be believed of files that the caller owns or may write, see above."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return b""
    try:
        mapping = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE)  # never written to
    except (OSError, ValueError):
        return None
    try:
        pages = -(-size // PAGE)
        vector = ctypes.create_string_buffer(pages)
        start = ctypes.c_char.from_buffer(mapping)
        try:
            done = _LIBRARY.mincore(
                ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), vector
            )
        finally:
            del start
        if done != 0:
            return None
        return bytes(byte & 1 for byte in vector.raw)
    finally:
        mapping.close()
