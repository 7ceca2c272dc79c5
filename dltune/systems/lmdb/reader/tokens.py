"""Staggering (STAG): a reader reads only while it holds one of n tokens.

A token is a lock on one byte of a file next to the database, of the kind that belongs to an open
file (OFD locks): the kernel passes it on when its holder is done or dies. Reader r takes token
r mod n, so that readers of neighbouring ranks, which read neighbouring parts of the file, read
together (the thesis, chapter 5.2.4, which passes tokens by MPI messages and names locks as the more
elegant way; across nodes these need a file system that has locks, as local ones, NFSv4, Lustre with
`flock` and GPFS do).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from dltune.base.errors import UsageError

SUFFIX = ".dltune-tokens"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid


class Tokens:
    """`count` tokens for the readers of the data file at `path`; `reader` is this one's number."""

    def __init__(self, path: Path, count: int, reader: int) -> None:
        """Raises UsageError when the file next to it cannot be made."""
        self._byte = reader % count
        place = path.with_name(path.name + SUFFIX)
        try:
            self._descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(
                f"cannot stagger: cannot write {place}: {error.strerror}",
                remedy="make the folder writable, or leave out stagger",
            ) from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the token, hold it until the block ends."""
        self._lock(fcntl.F_WRLCK)
        try:
            yield
        finally:
            self._lock(fcntl.F_UNLCK)

    def close(self) -> None:
        os.close(self._descriptor)

    def _lock(self, kind: int) -> None:
        wish = _FLOCK.pack(kind, os.SEEK_SET, self._byte, 1, 0)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW, wish)
        except OSError as error:
            raise UsageError(
                f"cannot stagger: this file system does not support locks: {error.strerror}",
                remedy="leave out stagger",
            ) from None
