"""Where in a file a job reads now.

A mapping: the pages in the process's own page table (/proc/PID/pagemap, bit 63), which hints do not
add to, though a fault maps up to 16 pages around it that are in memory. A descriptor that is read:
its position.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dltune.system.proc import process
from dltune.system.proc.process import Mapping, mappings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAGE = 4096
# pages sampled behind the last frontier, in each sample
WINDOW = 8192
NEAR, DENSE = 64, 18  # pages
# samples without progress before the whole mapping is sampled, so many pages in each sample
PATIENCE, PART = 50, 1 << 20


def foremost(touched: NDArray[np.bool_]) -> int | None:
    """Return the number of pages up to the reading position; None when nothing is read here.

    Pages of the tree are touched far from the records, alone or with the 15 others that a fault
    maps: only a page with `DENSE` touched ones among the `NEAR` up to it is taken for reading.
    """
    import numpy as np

    count: NDArray[np.int64] = np.concatenate(
        (np.zeros(NEAR + 1, np.int64), np.cumsum(touched, dtype=np.int64))
    )
    dense = touched & (count[NEAR + 1 :] - count[: len(touched)] >= DENSE)
    found = np.flatnonzero(dense)
    return int(found[-1]) + 1 if len(found) else None


@dataclass
class _Mapping:
    """Addresses from `start` show `pages` pages of the file from page `first` on."""

    descriptor: int
    start: int
    first: int
    pages: int
    reached: int = 0  # pages of the mapping up to the last one seen
    idle: int = 0
    # of samples of the whole: the position, the result so far, and the pages seen by the one
    # before, a bit for each page of a part
    scanned: int = 0
    found: int | None = None
    known: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    def look(self) -> int | None:
        """The page of the mapping behind the foremost one read now; None when nothing was."""
        front = foremost(self._present(self.reached, min(self.pages, self.reached + WINDOW)))
        if front is not None:
            self.reached += front
            self.idle = 0
            return self.reached
        self.idle += 1
        return self._look_at_part() if self.idle >= PATIENCE else None

    def _look_at_part(self) -> int | None:
        """The same of the whole mapping, at the last of its parts: a job that has begun again, or
        was found late."""
        import numpy as np

        first, last = self.scanned, min(self.pages, self.scanned + PART)
        now = self._present(first, last)
        if len(now) < last - first:  # its process has ended
            self.idle = 0
            return None
        before = self.known.get(first)
        self.known[first] = np.packbits(now)
        if before is not None:
            now &= ~np.unpackbits(before, count=len(now)).astype(bool)
        if (front := foremost(now)) is not None:
            self.found = first + front
        self.scanned = last
        if last < self.pages:
            return None
        found, self.found, self.scanned, self.idle = self.found, None, 0, 0
        if found is None or found == self.reached:
            return None
        self.reached = found
        return found

    def _present(self, first: int, last: int) -> NDArray[np.bool_]:
        import numpy as np

        try:
            data = os.pread(self.descriptor, (last - first) * 8, (self.start // PAGE + first) * 8)
        except OSError:
            data = b""
        entries = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
        return (entries >> np.uint64(63)).astype(bool)


@dataclass
class Frontiers:
    """Where the processes of a job read one file of `size` bytes, known by device and inode."""

    device: int
    inode: int
    size: int
    _mappings: dict[tuple[int, ...], _Mapping] = field(default_factory=dict)
    _descriptors: list[tuple[int, int]] = field(default_factory=list)

    def survey(self, pids: set[int]) -> None:
        """Find who has the file mapped or open now."""
        file = self.device, self.inode
        found: dict[tuple[int, ...], _Mapping] = {}
        self._descriptors = []
        for pid in pids:
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                for place in mappings(pid):
                    if not self._shows(pid, place):
                        continue
                    # a window that slides through the file can be at the same address again
                    key = pid, place.start, place.end, place.offset
                    known = self._mappings.pop(key, None)
                    if known is None:
                        descriptor = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
                        shown = min(place.end - place.start, self.size - place.offset)
                        pages = max(0, -(-shown // PAGE))  # a mapping can be longer than its file
                        known = _Mapping(descriptor, place.start, place.offset // PAGE, pages)
                    found[key] = known
                self._descriptors += [
                    (pid, opened.number)
                    for opened in process.plain_files(pid)
                    if (opened.status.st_dev, opened.status.st_ino) == file
                ]
        for gone in self._mappings.values():
            os.close(gone.descriptor)
        self._mappings = found

    def _shows(self, pid: int, place: Mapping) -> bool:
        """Return True if it is this file that is mapped there."""
        if place.inode != self.inode or place.device == self.device:
            return place.inode == self.inode
        with contextlib.suppress(OSError):  # file systems with separate devices: btrfs, overlay
            status = os.stat(f"/proc/{pid}/root{place.path}")  # noqa: PTH116 - no path to resolve
            return (status.st_dev, status.st_ino) == (self.device, self.inode)
        return False

    def look(self) -> list[int]:
        """Return, for each reader, the bytes from the file's start to behind the pages that it
        touched since the last sample."""
        found = []
        for mapping in self._mappings.values():
            reached = mapping.look()
            if reached is not None:
                found.append((mapping.first + reached) * PAGE)
        for pid, number in self._descriptors:
            place = process.position(pid, number)
            if place and place.at:
                found.append(place.at)
        return found
