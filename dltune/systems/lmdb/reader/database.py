"""A database at a snapshot, open for reading; noticed when a writer overtakes it."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.datafile import data_path, open_plain
from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.reader import fetch_binding
from dltune.watch.files.storage import hint_step, storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ATTEMPTS = 5  # to read records that a writer overtakes

Wanted = TypeVar("Wanted")


class Database:
    """The records of one database, by the positions they have when it is opened.

    `index` is that of the snapshot read now. As long as LMDB cannot have written over its pages,
    that is the first snapshot's. After that it is the newest: a position then means the record
    with the same key (and the same place among its duplicates), or, where that has been deleted,
    the next one in key order. So every position stays readable and each value is one that was
    committed under its key. `overtaken` counts the changes of snapshot.
    """

    def __init__(self, path: Path, name: bytes | None, *, direct: bool) -> None:
        """Raises UsageError as `Index.open`, for a database without records, and where the file
        system has no direct I/O."""
        self.path = data_path(path)
        self.name = name
        self.direct = direct
        self.overtaken = 0
        self.first = self.index = Index.open(self.path, name)
        if not len(self.index):
            raise UsageError(f"{path} has no records", remedy="name a database that has records")
        self.step = hint_step(storage(self.path))
        self._open()

    def __len__(self) -> int:
        return len(self.first)

    def current(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in `index` the records now are that were at `positions` when it was opened."""
        if self.index is self.first:
            return positions
        import numpy as np

        return np.fromiter(map(self._now, positions.tolist()), np.int64, len(positions))

    def settled(
        self,
        lay_out: Callable[[], Wanted],
        read: Callable[[Wanted], UsageError | None],
        remedy: str,
    ) -> Wanted:
        """Return the choice of `lay_out` by the index, once `read` (which returns what went wrong)
        has read it from a snapshot that held until then. Raises UsageError when that cannot be."""
        for _ in range(ATTEMPTS):
            wanted = lay_out()
            failure = read(wanted)
            if self.index.holds():
                if failure:
                    raise UsageError(f"{self.path}: {failure}", remedy=failure.remedy)
                return wanted
            self.overtake()
        raise UsageError(
            f"{self.path} was overwritten while it was read, in all {ATTEMPTS} attempts",
            remedy=remedy,
        )

    def fetch(self, pieces: NDArray[np.uint64], memory: int, parallel: int) -> UsageError | None:
        """Fetch as `fetch_binding.fetch`, from this file. All that comes through the page cache is
        asked for first: the kernel's own read-ahead would go on a window at a time.

        Returns what went wrong: it counts only if the snapshot still holds."""
        if not self.direct:
            self.hint(pieces[:, 0], pieces[:, 1])
        try:
            fetch_binding.fetch(self.descriptor, pieces, memory, parallel)
        except UsageError as error:
            return error
        return None

    def hint(self, offsets: NDArray[np.uint64], lengths: NDArray[np.unsignedinteger]) -> None:
        """Ask the kernel to read these pieces ahead."""
        fetch_binding.advise(self.descriptor, offsets, lengths, self.step)

    def overtake(self) -> None:
        """Go on with the newest snapshot. Raises UsageError when it has no records left."""
        index = Index.open(self.path, self.name)
        if not len(index):
            raise UsageError(
                f"all records of {self.path} were deleted while it was read", remedy=None
            )
        self.index = index
        self.overtaken += 1
        self.close()
        self._open()

    def _now(self, position: int) -> int:
        key = self.first.key(position)
        at = self.index.seek(key)
        if at == len(self.index):
            return 0  # the sequence is circular
        if not self.first.duplicates:
            return at
        place = position - self.first.seek(key)
        last = at
        while last < at + place and last + 1 < len(self.index) and self.index.key(last + 1) == key:
            last += 1
        return last

    def _open(self) -> None:
        self.descriptor = open_plain(self.path)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        if not self.direct:
            return
        try:
            flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        except OSError as error:
            self.close()
            if error.errno != errno.EINVAL:
                raise UsageError(
                    f"cannot read {self.path}: {error.strerror}", remedy=None
                ) from None
            raise UsageError(
                f"the file system of {self.path} does not support direct I/O (O_DIRECT)",
                remedy="pass direct=False",
            ) from None
