"""What to ask the kernel for: ahead of where the job reads, or all of a file once."""

from __future__ import annotations

import os
from pathlib import Path

from dltune.io.follow.frontier import Frontiers
from dltune.io.reader import fetch_binding
from dltune.io.report.storage import storage

STEP = 128 << 10  # bytes of one hint where the device's read-ahead is not told
CHUNK = 8 << 20  # bytes of a whole file that are on their way at a time


class Ahead:
    """Keeps `ahead` bytes before the foremost reader on their way. `asked`: bytes so far."""

    def __init__(self, path: Path, ahead: int) -> None:
        """Raises OSError when the file cannot be read."""
        self.path = path
        self.ahead = ahead
        self.asked = 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self._size = status.st_size
        self._step = storage(path).read_ahead or STEP
        self.frontiers = Frontiers(status.st_dev, status.st_ino)
        self._until = 0

    def look(self) -> None:
        """Ask for what comes next, where the job has read on."""
        import numpy as np

        reached = self.frontiers.look()
        if not reached:
            return
        front = max(reached)
        if front + self.ahead < self._until:  # it began again
            self._until = front
        start, end = max(front, self._until), min(self._size, front + self.ahead)
        # a few large hints rather than many small ones
        if end - start < min(self.ahead // 4, self._size - start) or end <= start:
            return
        fetch_binding.advise(
            self._descriptor,
            np.array([start], np.uint64),
            np.array([end - start], np.uint64),
            self._step,
        )
        self.asked += end - start
        self._until = end


class Whole:
    """Brings all of a file into the page cache once, at most two chunks on their way."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be read."""
        self.path = path
        self.asked = 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size
        self._step = storage(path).read_ahead or STEP

    @property
    def done(self) -> bool:
        return self.asked >= self._size

    def go_on(self) -> None:
        """Ask for a chunk, wait until the one before is there."""
        import numpy as np

        length = min(CHUNK, self._size - self.asked)
        fetch_binding.advise(
            self._descriptor,
            np.array([self.asked], np.uint64),
            np.array([length], np.uint64),
            self._step,
        )
        if self.asked:
            os.pread(self._descriptor, 1, self.asked - 1)
        self.asked += length
