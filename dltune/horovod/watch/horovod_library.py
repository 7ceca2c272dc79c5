"""Horovod's native library in a process that runs: which it is, and where its background loop lies.

The background thread runs `BackgroundThreadLoop`, and what the compiler made part of it
(`RunLoopOnce`), until Horovod is shut down: return addresses into it stay on that thread's stack.
They are told by the library's symbol table. A library stripped of local symbols still exports what
only the loop calls.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.horovod.watch import elf
from dltune.proc.maps import Mapping

# horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so, horovod/torch/mpi_lib_v2...so
_NAME = re.compile(r"/horovod/(tensorflow|torch|mxnet)/mpi_lib[^/]*\.so$")
_DIST_INFO = re.compile(r"horovod-([\w.+]+)\.dist-info")

# mangled names of what runs in the background thread alone: the loop, else what it calls
_LOOP = ("BackgroundThreadLoop", "RunLoopOnce")
_CALLED = ("Controller19ComputeResponseList", "16PerformOperation")
_WRITER = "TimelineWriter10WriterLoop"


@dataclass(frozen=True)
class Library:
    """`framework`: "tensorflow" or another. `code`: addresses in the process of all its code.
    `loop`: those of functions that only the background thread runs; none when the library has no
    symbols. `writer`: those of the thread that writes the timeline. `version`: of the package."""

    path: str
    framework: str
    version: str | None
    code: tuple[range, ...]
    loop: tuple[range, ...]
    writer: tuple[range, ...]


def find(pid: int, mapped: Sequence[Mapping]) -> Library | None:
    """Horovod's library among a process's mappings; None when it has not loaded one.

    Raises OSError when the process has ended or may not be looked into.
    """
    for mapping in mapped:
        found = _NAME.search(mapping.path)
        if found is None:
            continue
        path = mapping.path
        # through the process's own root: it may live in a container
        inside = f"/proc/{pid}/root{path}"
        status = os.stat(inside)  # noqa: PTH116
        segments, loop, writer = _read(path, status.st_ino, status.st_mtime_ns, inside)
        base = mapping.start - _linked(segments, mapping.offset)
        return Library(
            path,
            found[1],
            _version(Path(inside).parents[2]),
            tuple(range(m.start, m.end) for m in mapped if m.path == path and m.executable),
            tuple(range(base + start, base + end) for start, end in loop),
            tuple(range(base + start, base + end) for start, end in writer),
        )
    return None


def _linked(segments: Sequence[tuple[int, int]], offset: int) -> int:
    """The linked address of a page of the file."""
    page = os.sysconf("SC_PAGE_SIZE")
    for start, address in segments:
        if start // page * page == offset:
            return address // page * page
    return offset


def _version(packages: Path) -> str | None:
    try:
        names = [entry.name for entry in packages.iterdir()]
    except OSError:
        return None
    return next((match[1] for name in names if (match := _DIST_INFO.fullmatch(name))), None)


_Ranges = tuple[tuple[int, int], ...]


@functools.lru_cache(maxsize=16)
def _read(path: str, inode: int, changed: int, inside: str) -> tuple[_Ranges, _Ranges, _Ranges]:
    """(offset, linked address) of what is loaded; (start, end) of the loop's functions, and of the
    timeline's writer."""
    del path, inode, changed  # they are the key: ranks share a file
    image = elf.read(inside)
    for functions, names in ((image.local, _LOOP), (image.exported, _CALLED)):
        loop = tuple((f.start, f.end) for f in functions if any(part in f.name for part in names))
        if loop:
            writer = tuple((f.start, f.end) for f in functions if _WRITER in f.name)
            return image.segments, loop, writer
    return image.segments, (), ()
