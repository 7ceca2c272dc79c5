"""Tokens, without which no reader of a file reads: few read at a time, and these are neighbours.

Staggering (STAG; the thesis, chapter 5.2.4): where many readers at once make a storage seek, only
as many read as there are tokens. Readers that read neighbouring data read in the same turn, and
turns go through the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from dltune.base.errors import UsageError

SUFFIX = ".dltune-tokens"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid
_TURN = struct.Struct("qqq")  # at the file's begin: its number, the first and last that had a token

# Bytes of the file that are locked, each area as long as there can be readers
_AREA = 1 << 40
_STATE, _GATE = _AREA, _AREA + 1
_TOKENS, _WAITING, _READERS = 2 * _AREA, 3 * _AREA, 4 * _AREA
_POLL = 1e-3  # seconds, in which the reader whose turn is next begins to read


class Tokens:
    """`count` tokens for the readers of the data file at `path`; `reader` is this one's number, the
    lowest of its ranks: readers with neighbouring numbers read neighbouring data.

    When nobody reads, the next turn begins: that of the waiting reader with the lowest number above
    those of the last turn, or else with the lowest number. With it those can read that are next to
    it, `count` together, each once. So those that read together are neighbours, whichever ranks a
    node has; nobody is waited for who has nothing to read.

    A token is a lock on one byte of a file next to the database, of the kind that belongs to an
    open file (OFD locks). The kernel gives it back when its holder is done or dies. So are the
    signs that a reader exists, and that it waits. The thesis passes tokens by MPI messages in a
    fixed order, and names locks as the more elegant way. Across nodes, locks need a file system
    that has them, as local ones, NFSv4, Lustre with `flock` and GPFS do.
    """

    def __init__(self, path: Path, count: int, reader: int) -> None:
        """Raises UsageError when the file next to it cannot be made, or cannot be locked."""
        self._count, self._reader = count, reader
        self._had = -1  # number of the last turn in which this reader had a token
        place = path.with_name(path.name + SUFFIX)
        try:
            self._descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(
                f"cannot stagger: cannot write {place}: {error.strerror}",
                remedy="make the folder writable, or leave out stagger",
            ) from None
        try:
            self._lock(fcntl.F_RDLCK, _READERS + reader)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait for a token, hold it until the block ends."""
        with self._locked(fcntl.F_RDLCK, _WAITING + self._reader):
            while (token := self._token()) is None:
                time.sleep(_POLL)
                with self._locked(fcntl.F_WRLCK, _GATE):  # when all that read are done
                    pass
        try:
            yield
        finally:
            self._lock(fcntl.F_UNLCK, _GATE)
            self._lock(fcntl.F_UNLCK, token)

    def close(self) -> None:
        os.close(self._descriptor)

    def _token(self) -> int | None:
        """The byte of a token for this reader, if it can read now."""
        with self._locked(fcntl.F_WRLCK, _STATE):
            number, first, last = self._turn()
            begins = self._lowest(_TOKENS, 0, self._count) is None
            if begins:
                following = self._lowest(_WAITING, last + 1, _AREA)
                if following is None or following > self._reader > last:
                    following = self._reader if self._reader > last else self._first_waiting()
                if following != self._reader:
                    return None
                number, first, last = number + 1, self._reader, self._reader
            elif number == self._had or not self._is_near(first):
                return None
            free = range(_TOKENS, _TOKENS + self._count)
            token = next(
                (byte for byte in free if self._lock(fcntl.F_WRLCK, byte, wait=False)), None
            )
            if token is not None:
                told = _TURN.pack(number, first, max(last, self._reader))
                os.pwrite(self._descriptor, told, 0)
                self._had = number
                self._lock(fcntl.F_RDLCK, _GATE)
            return token

    def _turn(self) -> tuple[int, int, int]:
        told = os.pread(self._descriptor, _TURN.size, 0)
        if len(told) < _TURN.size:
            return 0, 0, -1
        number, first, last = _TURN.unpack(told)
        return number, first, last

    def _first_waiting(self) -> int:
        other = self._lowest(_WAITING, 0, self._reader)
        return self._reader if other is None else other

    def _is_near(self, first: int) -> bool:
        """True if this is one of `count` readers that follow each other from `first` on."""
        before, start = 0, first
        while before < self._count:
            other = self._lowest(_READERS, start, self._reader)
            if other is None:
                return first <= self._reader
            before, start = before + 1, other + 1
        return False

    def _lowest(self, area: int, start: int, stop: int) -> int | None:
        """The lowest place in an area that another open file has locked, start <= place < stop."""
        found = None
        while start < stop:
            wish = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, area + start, stop - start, 0)
            told = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, wish)
            kind, _, at, _, _ = _FLOCK.unpack(told)
            if kind == fcntl.F_UNLCK:
                break
            found = stop = at - area
        return found

    @contextlib.contextmanager
    def _locked(self, kind: int, byte: int) -> Iterator[None]:
        self._lock(kind, byte)
        try:
            yield
        finally:
            self._lock(fcntl.F_UNLCK, byte)

    def _lock(self, kind: int, byte: int, *, wait: bool = True) -> bool:
        """False where another open file has it and `wait` is not set."""
        wish = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, wish)
        except BlockingIOError:
            return False
        except OSError as error:
            raise UsageError(
                f"cannot stagger: this file system does not support locks: {error.strerror}",
                remedy="leave out stagger",
            ) from None
        return True
