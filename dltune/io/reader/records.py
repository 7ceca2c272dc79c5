"""Any record by its position: for samplers of one's own, and PyTorch's map-style data sets."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dltune.errors import UsageError
from dltune.io.reader.database import ATTEMPTS, Database
from dltune.io.reader.options import Options
from dltune.io.reader.pieces import layout
from dltune.io.reader.planned import planned
from dltune.io.reader.reader import Record


class Records:
    """The records of a database as a sequence, in the order of keys.

    `records[7]` is one, `records.read([3, 1, 3])` several, with as many requests in flight as
    `options.parallel` and neighbours read at once. PyTorch's DataLoader takes it as a data set, and
    reads whole batches by `__getitems__`. May be used by several threads, forked and pickled.
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
        self._buffer = mmap.mmap(-1, mmap.PAGESIZE)
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
        with self._lock:
            database = self._database
            for _ in range(ATTEMPTS):
                at = database.current(wanted)
                index = database.index
                sizes = index.sizes[at]
                found = layout(index.offsets[at], sizes, self.options.block, self.options.gap)
                if found.size > len(self._buffer):
                    self._buffer = mmap.mmap(-1, found.size)
                address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
                failure = None
                try:
                    database.fetch(found.pieces, address, self.options.parallel)
                except UsageError as error:
                    failure = error
                if index.holds():
                    if failure:
                        raise UsageError(f"{database.path}: {failure}", remedy=failure.remedy)
                    keys, ends = index.keys_at(at)
                    values = [
                        self._buffer[place : place + size]
                        for place, size in zip(found.places.tolist(), sizes.tolist(), strict=True)
                    ]
                    stops = ends.tolist()
                    starts = [0, *stops[:-1]]
                    return [
                        Record(keys[a:b], value)
                        for a, b, value in zip(starts, stops, values, strict=True)
                    ]
                database.overtake()
        raise UsageError(
            f"{self._database.path} was written over while it was read, {ATTEMPTS} times",
            remedy="let the writer commit less often",
        )

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
