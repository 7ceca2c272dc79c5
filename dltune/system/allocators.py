"""Other allocators of memory than glibc's: where they are installed, and whether they load.

They come into a job by LD_PRELOAD; nothing is ever downloaded.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

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


def find(name: str, environment: Mapping[str, str]) -> Path | None:
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
