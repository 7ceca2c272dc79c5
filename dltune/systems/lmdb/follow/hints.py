"""Requests to the kernel: ahead of where the job reads, or all of a file once."""

from __future__ import annotations

import abc
import contextlib
import os
from pathlib import Path

from dltune.systems.lmdb.follow.frontier import Frontiers
from dltune.systems.lmdb.reader import fetch_binding
from dltune.watch.files.storage import hint_step, storage

CHUNK = 8 << 20  # bytes of a whole file that are on their way at a time


class Hints(abc.ABC):
    """Hints for one file. `asked`: bytes so far."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be read."""
        self.path = path
        self.asked = 0
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        self._step = hint_step(storage(path))

    def ask(self, start: int, end: int) -> None:
        import numpy as np

        offsets, lengths = np.array([[start], [end - start]], np.uint64)
        fetch_binding.advise(self.descriptor, offsets, lengths, self._step)
        self.asked += end - start

    @abc.abstractmethod
    def look(self) -> None:
        """Ask for the next pages, if there are any."""


class Ahead(Hints):
    """Keeps `ahead` bytes before the foremost reader on their way."""

    def __init__(self, path: Path, ahead: int) -> None:
        super().__init__(path)
        self.ahead = ahead
        status = os.fstat(self.descriptor)
        self.frontiers = Frontiers(status.st_dev, status.st_ino, self.size)
        self._until = 0

    def look(self) -> None:
        """Ask for the next pages, where the job has read on."""
        front = max(self.frontiers.look(), default=0)
        if not front:
            return
        if front + self.ahead < self._until:  # it began again
            self._until = front
        start, end = max(front, self._until), min(self.size, front + self.ahead)
        # a few large hints rather than many small ones
        if end > start and end - start >= min(self.ahead // 4, self.size - start):
            self.ask(start, end)
            self._until = end


class Whole(Hints):
    """Brings all of a file into the page cache once, at most two chunks on their way."""

    def look(self) -> None:
        """Ask for a chunk, once the chunk before is there, or could not be read."""
        before = self.asked
        if before < self.size:
            with contextlib.suppress(OSError):
                self.ask(before, min(before + CHUNK, self.size))
                if before:
                    os.pread(self.descriptor, 1, before - 1)
