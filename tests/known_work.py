"""Work of which the counts are known."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


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


@dataclass(frozen=True)
class Counts:
    """Of the calling thread, by the kernel's own account."""

    faults: int
    switches: int

    def since(self, earlier: Counts) -> Counts:
        return Counts(self.faults - earlier.faults, self.switches - earlier.switches)


def thread_counts() -> Counts:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return Counts(used.ru_minflt + used.ru_majflt, used.ru_nvcsw + used.ru_nivcsw)


def sleep_off_the_cpu(times: int) -> int:
    """Sleep until the thread was switched out so often: a sleep that is over before the scheduler
    has taken the CPU away is no switch. The thread's switches then."""
    end = thread_counts().switches + times
    while (now := thread_counts().switches) < end:
        time.sleep(0.001)
    return now


def open_events() -> int:
    """Perf events that this process has open; what else it opens and closes is of no concern."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "perf_event" in os.readlink(descriptor)  # noqa: PTH115 - no path
    return found
