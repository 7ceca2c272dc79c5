"""Read-ahead hints while something else, such as py-lmdb, does the reading.

The kernel is asked (posix_fadvise WILLNEED) to bring records into the page cache that will be read
next. A wrong hint costs time, never data: whoever reads sees the file's content.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.database import Database
from dltune.systems.lmdb.reader.options import PAGE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
        from dltune.systems.lmdb.reader.planned import planned_ahead

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
