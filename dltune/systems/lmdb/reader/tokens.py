"""Tokens of the readers of a file: a reader reads only while it holds one.

Staggering (STAG; the thesis, chapter 5.2.4): where many readers at once make a storage seek, only
as many read as there are tokens. Readers of neighbouring data read in the same turn, and turns go
through the file.
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
_STATE, _GATES = _AREA, (_AREA + 1, _AREA + 2)  # gates of even and odd turns
_TOKENS, _WAITING, _READERS = 2 * _AREA, 3 * _AREA, 4 * _AREA
_POLL = 1e-3  # seconds until a reader asks again if the one whose turn is next has begun
_PATIENCE = 1.0  # seconds after which it begins in its place: that one can be stopped


class Tokens:
    """`count` tokens for the readers of the data file at `path`; `reader` is this one's number, the
    lowest of its ranks: readers with neighbouring numbers read neighbouring data.

    When nobody reads, the next turn begins. It starts with the waiting reader whose number is the
    lowest above those of the last turn, or else the lowest of all. In its turn, the `count` readers
    from that one on can read, each once. So those that read together are neighbours, whichever
    ranks a node has, and a reader that has nothing to read is not waited for.

    A token is a lock on one byte of a file next to the database, of the kind that belongs to an
    open file (OFD locks). The kernel gives it back when its holder is done or dies. That a reader
    exists, and that it waits, are locks, too. The thesis passes tokens by MPI messages in a fixed
    order, and names locks as the more elegant way. Across nodes, locks need a file system that has
    them, as local ones, Lustre with `flock`, GPFS and NFSv4 do. Where an NFS server does not notify
    clients, they ask for a lock again only after seconds.
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
            token = self._wait()
        try:
            yield
        finally:
            # before the gate: who waits there finds no token when it opens
            self._lock(fcntl.F_UNLCK, token)
            self._lock(fcntl.F_UNLCK, _GATES[self._had % 2])

    def close(self) -> None:
        os.close(self._descriptor)

    def _wait(self) -> int:
        """Return the byte of a token that was waited for."""
        since, before = time.monotonic(), -1
        while True:
            with self._locked(fcntl.F_WRLCK, _STATE):
                number, first, last = self._turn()
                if number != before:
                    since, before = time.monotonic(), number
                reads = self._lowest(_TOKENS, 0, _AREA) is not None
                if not reads:
                    late = time.monotonic() - since > _PATIENCE
                    if late or self._following(last) == self._reader:
                        return self._take(number + 1, self._reader, self._reader)
                elif number != self._had and self._is_near(first):
                    token = self._free()
                    if token is not None:
                        return self._take(number, first, max(last, self._reader), token)
            if reads:
                with self._locked(fcntl.F_WRLCK, _GATES[number % 2]):  # until this turn ends
                    pass
            else:
                time.sleep(_POLL)

    def _following(self, last: int) -> int:
        """The waiting reader whose turn is after that of `last`."""
        above = self._lowest(_WAITING, last + 1, _AREA)
        if self._reader > last:
            return self._reader if above is None else min(above, self._reader)
        if above is not None:
            return above
        lowest = self._lowest(_WAITING, 0, self._reader)
        return self._reader if lowest is None else lowest

    def _free(self) -> int | None:
        """Lock a token that nobody holds, and return its byte."""
        tokens = range(_TOKENS, _TOKENS + self._count)
        return next((byte for byte in tokens if self._lock(fcntl.F_WRLCK, byte, wait=False)), None)

    def _take(self, number: int, first: int, last: int, token: int | None = None) -> int:
        """Write that this reader has a token in this turn. Return its byte."""
        if token is None:
            token = self._free()
            assert token is not None  # nobody reads, and this reader has the state
        try:
            os.pwrite(self._descriptor, _TURN.pack(number, first, last), 0)
        except OSError as error:
            self._lock(fcntl.F_UNLCK, token)
            raise UsageError(
                f"cannot stagger: cannot write the file of tokens: {error.strerror}",
                remedy="free space for it, or leave out stagger",
            ) from None
        self._had = number
        self._lock(fcntl.F_RDLCK, _GATES[number % 2])
        return token

    def _turn(self) -> tuple[int, int, int]:
        told = os.pread(self._descriptor, _TURN.size, 0)
        if len(told) < _TURN.size:
            return 0, 0, -1
        number, first, last = _TURN.unpack(told)
        return number, first, last

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
            kind, _, byte, _, _ = _FLOCK.unpack(self._control(fcntl.F_OFD_GETLK, wish))
            if kind == fcntl.F_UNLCK:
                break
            found = stop = byte - area
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
            self._control(fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, wish)
        except BlockingIOError:
            return False
        return True

    def _control(self, command: int, wish: bytes) -> bytes:
        try:
            return fcntl.fcntl(self._descriptor, command, wish)
        except BlockingIOError:
            raise
        except OSError as error:
            raise UsageError(
                f"cannot stagger: this file system does not support locks: {error.strerror}",
                remedy="leave out stagger",
            ) from None
