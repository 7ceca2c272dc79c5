"""Memory that a job can use: allocators, pages, free memory, and files on storage as a tier."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.schemas.machine import Tier
from dltune.system.kernel_files import limits, mounts, text
from dltune.system.proc import process
from dltune.system.proc.stat import Tree

# Allocators other than glibc's: where they are installed, and whether they load. They come into a
# job by LD_PRELOAD; nothing is ever downloaded

# sonames of each, the plainest first: tcmalloc without its profilers does the same work
SONAMES = {
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
    "jemalloc": ("libjemalloc.so.2",),
    "mimalloc": ("libmimalloc.so.3", "libmimalloc.so.2"),
}
PACKAGES = {
    "tcmalloc": "libtcmalloc-minimal4 (Debian, Ubuntu) or gperftools-libs (Fedora)",
    "jemalloc": "libjemalloc2 (Debian, Ubuntu) or jemalloc (Fedora)",
    "mimalloc": "libmimalloc2.0 (Debian, Ubuntu) or mimalloc (Fedora)",
}
_FOLDERS = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/usr/lib", "/lib64", "/lib")


def find_allocator(name: str, environment: Mapping[str, str]) -> Path | None:
    """The library of an allocator that loads here: on LD_LIBRARY_PATH, beside a conda
    environment's libraries, in the system's cache or the common folders. None: there is none."""
    for soname in SONAMES[name]:
        for path in _places(soname, environment):
            if path.is_file() and _loads(path):
                return path
    return None


def preloads(environment: Mapping[str, str]) -> list[str]:
    """The libraries in an LD_PRELOAD."""
    return [entry for entry in re.split(r"[:\s]+", environment.get("LD_PRELOAD", "")) if entry]


def preloaded(environment: Mapping[str, str]) -> str | None:
    """The allocator in an LD_PRELOAD, by its file's name."""
    for entry in preloads(environment):
        if re.search(r"malloc|libhoard|libsnmalloc|libtbbmalloc", Path(entry).name):
            return entry
    return None


def glibc() -> tuple[int, int] | None:
    """The version of the C library here; None when it is another one."""
    library, version = platform.libc_ver()
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match and library == "glibc" else None


def _places(soname: str, environment: Mapping[str, str]) -> Iterator[Path]:
    for folder in filter(None, environment.get("LD_LIBRARY_PATH", "").split(":")):
        yield Path(folder) / soname
    if prefix := environment.get("CONDA_PREFIX"):
        yield Path(prefix) / "lib" / soname
    yield from (path for path in _cached() if path.name == soname)
    for folder in _FOLDERS:
        yield Path(folder) / soname


@functools.lru_cache
def _cached() -> tuple[Path, ...]:
    """The libraries in the dynamic linker's cache."""
    program = shutil.which("ldconfig", path=f"{os.defpath}:/sbin:/usr/sbin")
    if program is None:
        return ()
    try:
        told = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(Path(path) for path in re.findall(r"=> (/.*malloc.*)", told))


@functools.lru_cache
def _loads(library: Path) -> bool:
    """Whether a program of this machine runs with it. The linker says it, and goes on, when one is
    for another architecture or lacks something; a shell has all that a program here has."""
    environment = {"LD_PRELOAD": str(library), "PATH": os.defpath}
    try:
        tried = subprocess.run(
            ["/bin/sh", "-c", ":"], capture_output=True, timeout=20, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0 and not tried.stderr


# Pages

PAGES, TURNS = 1024, 7


def huge_page_mode(root: Path = Path("/")) -> str | None:
    """Return the system's mode of transparent huge pages: `always`, `madvise` or `never`; None when
    the kernel has none."""
    modes = text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    return next(iter(re.findall(r"\[(\w+)\]", modes)), modes) or None


def fault_seconds() -> float:
    """Measure the cost of a page fault: the seconds that the first write to a fresh page takes more
    than the second; of each the least of TURNS, because other work only ever adds to it. Pages are
    of the usual size, not huge.

    A fault costs a few hundred nanoseconds on bare metal, and several times that in most virtual
    machines, where the hypervisor's page tables are walked too.
    """
    turns = [_turn() for _ in range(TURNS)]
    first, again = min(first for first, _ in turns), min(again for _, again in turns)
    return max(0.0, first - again) / PAGES


def _turn() -> tuple[float, float]:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        return _touch(memory), _touch(memory)


def _touch(memory: mmap.mmap) -> float:
    began = time.perf_counter()
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    return time.perf_counter() - began


# Memory in use and free memory


def used_bytes(pid: int) -> int:
    """Resident memory of a process and all that it has started."""
    with contextlib.suppress(UsageError):
        return sum(map(process.resident, Tree(pid).refresh()))
    return 0  # it has ended


def free_bytes() -> tuple[int, int]:
    """Return the bytes that can still be taken without swapping, and all bytes: of the machine, or
    of the control group that this process and its jobs are in, when its limit is lower."""
    import psutil  # type: ignore[import-untyped]

    machine = psutil.virtual_memory()
    limit = limits().memory
    if limit is None or limit >= machine.total:
        return machine.available, machine.total
    return min(machine.available, max(0, limit - used_bytes(os.getpid()))), limit


# Storage: its speed, as a tier for tensors

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
