"""The file system and the device of a file."""

from __future__ import annotations

import os
import re
from pathlib import Path

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
    """Return the storage of `path`; `root`: where `proc` and `sys` are found.

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
