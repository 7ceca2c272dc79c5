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

from dltune.proc import descriptors
from dltune.proc.maps import mappings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAGE = 4096
# pages looked at behind the last frontier, at each look
WINDOW = 8192
NEAR, DENSE = 64, 18  # pages
# looks without progress before the whole mapping is looked at
PATIENCE = 50


def foremost(touched: NDArray[np.bool_]) -> int | None:
    """Behind which page the reading stands; None when nothing is read here.

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
    known: NDArray[np.bool_] | None = None

    def look(self) -> int | None:
        """The page of the mapping behind the foremost one read now; None when nothing was."""
        front = foremost(self._present(self.reached, min(self.pages, self.reached + WINDOW)))
        if front is not None:
            self.reached += front
            self.idle = 0
            return self.reached
        self.idle += 1
        if self.idle < PATIENCE:
            return None
        self.idle = 0
        before, self.known = self.known, self._present(0, self.pages)
        # a job that has begun again, or was found late
        front = foremost(self.known if before is None else self.known & ~before)
        if front is None or front == self.reached:
            return None
        self.reached = front
        return front

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
    """Where the processes of a job read one file, known by device and inode."""

    device: int
    inode: int
    _mappings: dict[tuple[int, int], _Mapping] = field(default_factory=dict)
    _descriptors: list[tuple[int, int]] = field(default_factory=list)

    def survey(self, pids: set[int]) -> None:
        """Find who has the file mapped or open now."""
        file = self.device, self.inode
        found: dict[tuple[int, int], _Mapping] = {}
        self._descriptors = []
        for pid in pids:
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                for place in mappings(pid):
                    if (place.device, place.inode) != file:
                        continue
                    known = self._mappings.pop((pid, place.start), None)
                    if known is None:
                        descriptor = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
                        first, pages = place.offset // PAGE, (place.end - place.start) // PAGE
                        known = _Mapping(descriptor, place.start, first, pages)
                    found[pid, place.start] = known
                self._descriptors += [
                    (pid, opened.number)
                    for opened in descriptors.plain_files(pid)
                    if (opened.status.st_dev, opened.status.st_ino) == file
                ]
        for gone in self._mappings.values():
            os.close(gone.descriptor)
        self._mappings = found

    def look(self) -> list[int]:
        """Bytes from the file's start to behind what each reader touched since the last look."""
        found = []
        for mapping in self._mappings.values():
            reached = mapping.look()
            if reached is not None:
                found.append((mapping.first + reached) * PAGE)
        for pid, number in self._descriptors:
            place = descriptors.position(pid, number)
            if place and place.at:
                found.append(place.at)
        return found
