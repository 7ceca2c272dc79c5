"""A database at a snapshot, open for reading, and read-ahead hints for other readers of a file."""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.datafile import data_path, open_plain
from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.reader import fetch_binding
from dltune.systems.lmdb.reader.options import PAGE
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

    A writer that overtakes the snapshot is noticed.
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


LEAST_SHARE = 50  # of the time that indexing took, before a stale index is made again
TOGETHER = 64  # positions examined, at least, before hints are given
TREE_PAGES = 16  # longer stretches are free pages rather


class ReadAhead:
    """Positions in the order in which records will be read, each given out after its hint.

        with lmdb.open(path, readonly=True, lock=False, readahead=False) as env, env.begin() as txn:
            for key in ReadAhead(path, sampler).keys():
                train(txn.get(key))

    `positions`: of records in key order, from a sampler, finite or not. `ahead`: bytes that are
    asked for before they are given out. When a writer has committed, which is noticed by the
    transaction's number, hints go where the records are now.

    The hints are for something else, such as py-lmdb, that does the reading. dltune asks the kernel
    (posix_fadvise WILLNEED) to bring the records that will be read next into the page cache. A
    wrong hint costs time, never data: the reader always sees the file's content.
    """

    def __init__(
        self,
        path: Path | str,
        positions: Iterable[int],
        *,
        ahead: int | None = None,
        database: bytes | None = None,
    ) -> None:
        """`ahead`: None takes the setting of the job's plan, which can be no hints. Raises
        UsageError when the file cannot be read, or has no such database."""
        from dltune.systems.lmdb.reader.options import planned_ahead

        self._database = Database(Path(path), database, direct=False)
        self._positions = iter(positions)
        self.ahead = planned_ahead(self._database.path) if ahead is None else ahead
        if ahead is not None and ahead < 1:
            raise UsageError(f"ahead must be at least 1 (bytes), got {ahead}", remedy=None)
        self._look = 0.0

    def __len__(self) -> int:
        """Return the number of records of the database."""
        return len(self._database)

    def __iter__(self) -> Iterator[int]:
        """The positions. Hints are given as they are taken."""
        import numpy as np

        if not self.ahead:
            yield from self._positions
            return
        self._hint_tree()
        sizes = self._database.first.sizes
        waiting: collections.deque[int] = collections.deque()
        outstanding = 0
        while True:
            if outstanding <= self.ahead // 2:
                taken: list[int] = []
                for position in self._positions:
                    taken.append(position)
                    outstanding += int(sizes[position])
                    if outstanding >= self.ahead and len(taken) >= TOGETHER:
                        break
                if taken:
                    self._hint(np.array(taken, np.int64))
                    waiting.extend(taken)
            if not waiting:
                return
            position = waiting.popleft()
            outstanding -= int(sizes[position])
            yield position

    def keys(self) -> Iterator[bytes]:
        """Yield the records' keys, in the order of iterating."""
        for position in self:
            yield self._database.first.key(position)

    def close(self) -> None:
        self._database.close()

    def _hint(self, positions: NDArray[np.int64]) -> None:
        if not len(positions):
            return
        self._keep_up()
        database = self._database
        at = database.current(positions)
        index = database.index
        database.hint(index.offsets[at], index.sizes[at])

    def _keep_up(self) -> None:
        """With a writer's commits. Where they come too fast for an index, the old one will do."""
        began = time.monotonic()
        if began < self._look:
            return
        with contextlib.suppress(UsageError):
            if not self._database.index.stale():
                return
            self._database.overtake()
        # a writer that never rests must not keep the job busy with indexes
        self._look = time.monotonic() + LEAST_SHARE * (time.monotonic() - began)

    def _hint_tree(self) -> None:
        """The pages between records are those of the tree, which every search goes through."""
        import numpy as np

        index = self._database.index
        order = np.argsort(index.offsets, kind="stable")
        starts = index.offsets[order].astype(np.int64) // PAGE
        ends = -(-(index.offsets[order].astype(np.int64) + index.sizes[order]) // PAGE)
        before = np.concatenate(([2], np.maximum.accumulate(ends)[:-1]))
        between = np.flatnonzero((starts > before) & (starts - before <= TREE_PAGES))
        self._database.hint(
            (before[between] * PAGE).astype(np.uint64),
            ((starts - before)[between] * PAGE).astype(np.uint64),
        )
