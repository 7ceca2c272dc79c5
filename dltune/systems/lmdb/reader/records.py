"""Any record by its position: for samplers of one's own, and PyTorch's map-style data sets."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.database import Database
from dltune.systems.lmdb.reader.options import Options
from dltune.systems.lmdb.reader.pieces import Layout, layout
from dltune.systems.lmdb.reader.planned import planned
from dltune.systems.lmdb.reader.reader import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Records:
    """The records of a database as a sequence, in the order of keys.

    `records[7]` is a record, `records.read([3, 1, 3])` several, with as many requests in flight as
    `options.parallel` and neighbours read at once. PyTorch's DataLoader takes it as a data set, and
    reads whole batches by `__getitems__`. Can be used by several threads, forked and pickled.
    A writer may commit meanwhile: see `database.Database`.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        database: bytes | None = None,
        options: Options | None = None,
    ) -> None:
        """Raises UsageError when the file cannot be read or has no such database."""
        self._arguments = (Path(path), database, options)
        self.options = planned(Path(path)) if options is None else options
        self._database = Database(Path(path), database, direct=self.options.direct)
        self._buffer = _room(mmap.PAGESIZE)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._database)

    def __getitem__(self, position: int) -> Record:
        at = position + len(self) if position < 0 else position
        if not 0 <= at < len(self):
            raise IndexError(position)
        return self.read([at])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Record]:
        return self.read(positions)

    def read(self, positions: Sequence[int]) -> list[Record]:
        """The records at these positions, 0 <= position < len(self).

        Raises UsageError when the file cannot be read, or is written over faster than it is read.
        """
        import numpy as np

        wanted = np.asarray(positions, np.int64)
        if not wanted.size:
            return []
        if wanted.min() < 0 or wanted.max() >= len(self):
            raise IndexError(f"positions are from 0 to {len(self) - 1}")
        database, options = self._database, self.options

        def lay_out() -> tuple[NDArray[np.int64], Layout]:
            at, index = database.current(wanted), database.index
            return at, layout(index.offsets[at], index.sizes[at], options.block, options.gap)

        def read(chosen: tuple[NDArray[np.int64], Layout]) -> UsageError | None:
            _, found = chosen
            if found.size > len(self._buffer):
                self._buffer = _room(found.size)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
            return database.fetch(found.pieces, address, options.parallel)

        with self._lock:
            at, found = database.settled(lay_out, read, "let the writer commit less often")
            keys, ends = database.index.keys_at(at)
            places, sizes = found.places.tolist(), database.index.sizes[at].tolist()
            return [
                Record(keys[a:b], self._buffer[place : place + size])
                for (a, b), place, size in zip(
                    pairwise([0, *ends.tolist()]), places, sizes, strict=True
                )
            ]

    def close(self) -> None:
        self._database.close()

    def __getstate__(self) -> tuple[Path, bytes | None, Options | None]:
        return self._arguments

    def __setstate__(self, state: tuple[Path, bytes | None, Options | None]) -> None:
        path, database, options = state
        Records.__init__(self, path, database=database, options=options)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _room(size: int) -> mmap.mmap:
    """Memory at the beginning of a page, of this process alone: that of a fork is its own."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
