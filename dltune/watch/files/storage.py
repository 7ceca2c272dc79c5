"""The storage of a file: its file system and device, and its part in the page cache.

Files can also be dropped from the page cache, so that they are read cold.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.base.formatting import size
from dltune.schemas.io import Storage
from dltune.system.kernel_files import Mount, mounts

# file systems whose reads the kernel counts in no process's read_bytes, or which hold no storage
_UNCOUNTED = re.compile(r"^(fuse|nfs|cifs|smb|ceph|lustre|gpfs|9p|virtiofs|afs|tmpfs|ramfs)")


def hint_step(place: Storage) -> int:
    """Bytes of one read-ahead hint: the kernel silently reads no more of it than it reads ahead."""
    return place.read_ahead or 128 << 10


def device_of(number: int) -> str:
    """ "major:minor" of a device number such as st_dev."""
    return f"{os.major(number)}:{os.minor(number)}"


def storage(
    path: Path, root: Path = Path("/"), *, shown: Path | None = None, pid: int | None = None
) -> Storage:
    """Return the file system and the device of `path`; `root`: where `proc` and `sys` are found.

    `shown`: the file's own path as process `pid` sees it, when `path` is another way to it; a
    container has separate mounts. Raises OSError when `path` cannot be inspected.
    """
    device = device_of(path.stat().st_dev)
    mount = _mount(shown or path.resolve(), device, root / f"proc/{pid or 'self'}/mountinfo")
    block = _block(device, mount.source, root)
    return Storage(
        device=device,
        mount=mount.point,
        source=mount.source,
        kind=mount.kind,
        read_ahead=_read_ahead(device, block, root),
        rotational=None if block is None else _line(block / "queue/rotational") == "1",
        scheduler=None if block is None else _chosen(_line(block / "queue/scheduler")),
        requests=None if block is None else _number(block / "queue/nr_requests"),
        counted=not _UNCOUNTED.match(mount.kind),
    )


def _mount(path: Path, device: str, table: Path) -> Mount:
    """The mount of that device whose point is the longest beginning of the path; a btrfs subvolume
    has a device of its own that no mount tells, and so the path decides alone."""
    above = [m for m in mounts(table) if _within(str(path), m.point)]
    named = [m for m in above if m.device == device] or above
    unknown = Mount(device, "?", "?", "?", "?", frozenset())
    return max(named, key=lambda m: len(m.point), default=unknown)


def _within(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _block(device: str, source: str, root: Path) -> Path | None:
    """The block device's folder in /sys; a partition's is within its disk's, which has the queue.
    File systems over several devices (btrfs) name one of them as their source."""
    places = [root / "sys/dev/block" / device, root / "sys/class/block" / Path(source).name]
    reals = [place.resolve() for place in places if place.exists()]
    folders = (folder for real in reals for folder in (real, real.parent))
    return next((folder for folder in folders if (folder / "queue").is_dir()), None)


def _read_ahead(device: str, block: Path | None, root: Path) -> int | None:
    """Return the read-ahead in bytes, of the file system itself (its backing device info), else of
    the block device."""
    places = [root / "sys/class/bdi" / device / "read_ahead_kb"]
    if block is not None:
        places.append(block / "queue/read_ahead_kb")
    for place in places:
        if (kilobytes := _number(place)) is not None:
            return kilobytes * 1024
    return None


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _line(path)
    return int(text) if text and text.isdecimal() else None


def _chosen(text: str | None) -> str | None:
    """The scheduler in brackets."""
    match = re.search(r"\[([\w-]+)\]", text or "")
    return match[1] if match else text


# The part of a file in the page cache

PAGE = mmap.PAGESIZE
# of all architectures but alpha: system calls since 424 have the same numbers
_CACHESTAT = 451
_LIBRARY = ctypes.CDLL(None, use_errno=True)
# most bytes of a file that can stay, or this share: pages under writeback, in other CPUs' lists
LEFT, LEFT_SHARE = 1 << 20, 0.02
# seconds for a slow store to complete read-ahead, and samples without change that end the wait
PATIENCE, LOOKS = 2.0, 20


@dataclass(frozen=True)
class Cached:
    """Bytes in the page cache; `seen`: including bytes that have been dropped since, as far as the
    kernel remembers them, else the same."""

    now: int
    seen: int


def cached(descriptor: int) -> Cached | None:
    """Return the cached bytes of an open plain file; None if neither source is reliable here.

    `cachestat` (Linux 6.5) reports them exactly, and also counts pages that were there and have
    been dropped since. `mincore` is older. If the caller neither owns a file nor can write to it,
    `mincore` reports all of it as resident (Linux 5.2): such an answer is not used.
    """
    if (told := _cachestat(descriptor)) is not None:
        return told
    if not _owned(descriptor) or (resident := resident_pages(descriptor)) is None:
        return None
    count = sum(resident) * PAGE
    return Cached(count, count)


def drop(path: Path, descriptor: int) -> bool:
    """Drop the pages of an open file. Return True if they are known to be gone; False if this user
    cannot see the page cache, and only reads can show it.

    Raises UsageError when they stay: another process has them mapped, or the file is in memory.
    """
    os.fdatasync(descriptor)  # pages that are not written yet would stay
    until = time.monotonic() + PATIENCE
    before, same = None, 0
    while True:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        left = cached(descriptor)
        if left is None:
            return False
        same = same + 1 if left.now == before else 0
        before = left.now
        # pages of a pending read-ahead can be dropped once they arrive; others will not go
        if not left.now or same == LOOKS or time.monotonic() > until:
            break
        time.sleep(0.05)
    if left.now <= max(LEFT, LEFT_SHARE * os.fstat(descriptor).st_size):
        return True
    raise UsageError(
        f"{path} cannot be read cold: {size(left.now)} of it stay in the page cache",
        remedy="stop the processes that have it mapped, or copy a file in memory (tmpfs) to a disk",
    )


def _cachestat(descriptor: int) -> Cached | None:
    everything = (ctypes.c_uint64 * 2)(0, 0)
    result = (ctypes.c_uint64 * 5)()  # cached, dirty, under writeback, evicted, recently so
    done = _LIBRARY.syscall(
        ctypes.c_long(_CACHESTAT), ctypes.c_int(descriptor), everything, result, ctypes.c_uint(0)
    )
    if done != 0:
        return None
    return Cached(result[0] * PAGE, (result[0] + result[3]) * PAGE)


def _owned(descriptor: int) -> bool:
    """Return True if the kernel answers mincore truthfully: to the owner, and to writers."""
    return os.geteuid() in (0, os.fstat(descriptor).st_uid) or os.access(
        f"/proc/self/fd/{descriptor}", os.W_OK
    )


def resident_pages(descriptor: int) -> bytes | None:
    """Return a byte for each page of a file, 1 if it is in the page cache. None when it cannot be
    mapped. Reliable only for files that the caller owns or can write, see `cached`."""
    length = os.fstat(descriptor).st_size
    if length == 0:
        return b""
    try:
        mapping = mmap.mmap(descriptor, length, flags=mmap.MAP_PRIVATE)  # never written to
    except (OSError, ValueError):
        return None
    with mapping:
        vector = ctypes.create_string_buffer(-(-length // PAGE))
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        done = _LIBRARY.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), vector)
        return bytes(byte & 1 for byte in vector.raw) if done == 0 else None
