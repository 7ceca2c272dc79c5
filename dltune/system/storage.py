"""What the storage behind a folder does in a second."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.schemas.machine import Tier
from dltune.system.proc.mounts import mounts

_PIECE = 8 << 20  # bytes; a large activation
_SECONDS = 1.0  # of writing
_MOST = 1 << 30
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def file_tier(folder: Path) -> Tier:
    """A file in this folder: as many bytes as are free there, and the lower of the speeds at which
    it is written and read again, without the page cache. Takes some two seconds. Raises UsageError
    when no file can be written there."""
    piece = os.urandom(_PIECE)  # nothing that storage could shrink
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            written, began = 0, time.perf_counter()
            while time.perf_counter() - began < _SECONDS and written < min(_MOST, free // 2):
                written += os.pwrite(file.fileno(), piece, written)
                os.fdatasync(file.fileno())
            writing = time.perf_counter() - began
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            for at in range(0, written, _PIECE):
                os.pread(file.fileno(), _PIECE, at)
            reading = time.perf_counter() - began
    except OSError as error:
        raise UsageError(
            f"{folder} cannot hold a file of tensors: {error.strerror}",
            remedy="name an existing, writable folder with free space",
        ) from None
    if not written:
        raise UsageError(f"{folder} has no free space", remedy="name another folder")
    return Tier(f"a file in {folder}", free, written / max(writing, reading))


def in_memory(folder: Path) -> bool:
    """Whether files in this folder are in main memory themselves."""
    number = folder.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    table = mounts(Path("/proc/self/mountinfo"))
    return any(one.device == device and one.kind in _IN_MEMORY for one in table)
