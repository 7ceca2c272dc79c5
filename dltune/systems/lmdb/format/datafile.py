"""An LMDB data file, opened for reading."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.meta import Meta, read_metas

NAME = "data.mdb"  # of the data file in an environment's folder


class Identity(msgspec.Struct, frozen=True):
    """By which a file is known again. Whatever is written to it, or put in its place, changes it.

    `ctime` in nanoseconds is set by the kernel at each change, unlike the time of modification,
    which `cp -p` and `rsync` bring along. `meta` is the newest snapshot's meta page, in hex.
    """

    inode: int
    size: int
    ctime: int
    txn: int
    meta: str


class DataFile:
    """A data file as it was at one committed transaction. Made by `opened`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.meta: Meta = max(read_metas(self._read, str(path)), key=lambda meta: meta.txn)
        status = os.fstat(descriptor)  # after the meta page: the file can have grown for its pages
        self.size = status.st_size
        self.identity = Identity(
            status.st_ino, status.st_size, status.st_ctime_ns, self.meta.txn, self.meta.raw.hex()
        )

    def holds(self) -> bool:
        """Return True if the snapshot's meta page is still as it was when the file was opened.

        If so, all that was read of the snapshot's pages until now is right (see the package).
        """
        return self.has(self.meta.raw)

    def has(self, raw: bytes) -> bool:
        """Return True if one of the meta pages, read again, is `raw`."""
        try:
            return any(meta.raw == raw for meta in read_metas(self._read, str(self.path)))
        except UsageError:
            return False

    def _read(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self.descriptor, length, offset)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", remedy=None) from None


def data_path(path: Path) -> Path:
    """The data file that `path` means: itself, or the file in the environment's folder."""
    try:
        return path / NAME if (path / NAME).exists() else path
    except OSError:  # a name too long, a folder that cannot be read: opening it will report that
        return path


@contextmanager
def opened(path: Path) -> Iterator[DataFile]:
    """The data file at `path` (or in the folder `path`), open until the block ends.

    Raises UsageError when there is none, when it is not a plain file, or no LMDB file.
    """
    path = data_path(path)
    descriptor = open_plain(path)
    try:
        yield DataFile(path, descriptor)
    finally:
        os.close(descriptor)


def open_plain(path: Path) -> int:
    """A descriptor of the plain file at `path`; the caller closes it.

    Raises UsageError for a folder, a pipe, a device, and for what cannot be opened.
    """
    try:
        # a pipe without a writer would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=None) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise UsageError(
            f"{path} is a folder without {NAME}", remedy="name a data file, or an LMDB folder"
        )
    raise UsageError(f"{path} is not a regular file", remedy="name a data file")
