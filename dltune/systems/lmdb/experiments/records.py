"""Positions of the records of a file: those of its format, else equal pieces."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.schemas.io import FileFormat

# of files whose format has no records, or none known here
PIECE = 128 << 10


@dataclass(frozen=True)
class Records:
    """Offsets and sizes in bytes, in the order of keys or of the file."""

    offsets: Sequence[int]
    sizes: Sequence[int]

    def window(self, limit: int) -> Records:
        """The first records, of `limit` bytes together; at least 8, or all."""
        n = max(8, bisect_left(list(accumulate(self.sizes)), limit) + 1)
        return Records(self.offsets[:n], self.sizes[:n])


def records(path: Path, descriptor: int, kind: FileFormat, limit: int) -> Records:
    """The first records of about `limit` bytes of an open file.

    Raises UsageError for a damaged LMDB file.
    """
    if kind == "lmdb":
        return _lmdb(path, limit)
    size = os.fstat(descriptor).st_size
    found = None
    if kind == "npy":
        found = _npy(path, size)
    elif kind == "tfrecord":
        found = _tfrecord(descriptor, size, limit)
    return found or _pieces(0, size, PIECE)


def _lmdb(path: Path, limit: int) -> Records:
    """Return the records of the database with the most bytes."""
    import numpy as np

    from dltune.systems.lmdb.format.index import Index

    index = max(Index.all(path), key=lambda one: int(one.sizes.sum(dtype=np.uint64)))
    keep = np.flatnonzero(index.sizes)
    ends = np.cumsum(index.sizes[keep], dtype=np.uint64)
    keep = keep[: max(8, int(np.searchsorted(ends, limit)) + 1)]
    if not len(keep):
        raise UsageError(f"{path} has no records", remedy="name a file that has records")
    return Records(index.offsets[keep].tolist(), index.sizes[keep].tolist())


def _npy(path: Path, size: int) -> Records | None:
    """Rows of the first axis; small ones are put together to a page."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError):  # it has vanished; it has objects, or is cut off
        return None
    if not array.size or not array.shape or not array.flags.c_contiguous:
        return None
    row = array.nbytes // len(array)
    return _pieces(array.offset, size, row * -(-4096 // row) if row < 4096 else row)


def _tfrecord(descriptor: int, size: int, limit: int) -> Records | None:
    """Each record: length in 8 bytes, 4 of checksum, the data, 4 of checksum."""
    offsets, sizes = [], []
    at = 0
    while at + 16 <= size and at < limit:
        (length,) = struct.unpack("<Q", os.pread(descriptor, 8, at))
        if at + length + 16 > size:
            break
        offsets.append(at)
        sizes.append(length + 16)
        at += length + 16
    return Records(offsets, sizes) if len(offsets) >= 8 else None


def _pieces(start: int, end: int, piece: int) -> Records:
    offsets = range(start, max(start + 1, end - piece + 1), piece)
    return Records(offsets, [min(piece, end - offset) for offset in offsets])
