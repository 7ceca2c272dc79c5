"""Work of which the counts are known."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator


@contextlib.contextmanager
def untouched(pages: int) -> Iterator[int]:
    """The address of private memory in small pages, none of them there yet."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, pages * mmap.PAGESIZE, flags=flags) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        first = ctypes.c_char.from_buffer(memory)
        try:
            yield ctypes.addressof(first)
        finally:
            del first


def touch(address: int, pages: int) -> None:
    """One page fault for each page, in user space."""
    ctypes.memset(address, 1, pages * mmap.PAGESIZE)
