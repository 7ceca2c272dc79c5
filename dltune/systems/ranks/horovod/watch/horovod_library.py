"""Horovod's native library in a running process: its file, and the address of its background loop.

The background thread runs `BackgroundThreadLoop`, and the function that the compiler made part of
it (`RunLoopOnce`), until Horovod is shut down: return addresses into it stay on that thread's
stack. The library's symbol table shows where they are. A library stripped of local symbols still
exports functions that only the loop calls.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.system.proc.process import Mapping
from dltune.systems.ranks.horovod.watch import elf
from dltune.systems.ranks.horovod.watch.elf import Symbol

# horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so, horovod/torch/mpi_lib_v2...so
_NAME = re.compile(r"/horovod/(?:tensorflow|torch|mxnet)/mpi_lib[^/]*\.so$")

# mangled names of functions that run in the background thread alone: the loop, else its callees
_LOOP = ("BackgroundThreadLoop", "RunLoopOnce")
_CALLED = ("Controller19ComputeResponseList", "16PerformOperation")
_WRITER = "TimelineWriter10WriterLoop"


@dataclass(frozen=True)
class Library:
    """`is_horovod`: it belongs to Horovod, else to PyTorch. `version`: of that package. `code`:
    addresses in the process of all its code. `loop`: those of functions that only the background
    thread runs; none when the library has no symbols. `writer`: those of the thread that writes the
    timeline."""

    path: str
    version: str | None
    code: tuple[range, ...]
    loop: tuple[range, ...]
    writer: tuple[range, ...]
    is_horovod: bool = True


def find(pid: int, mapped: Sequence[Mapping]) -> Library | None:
    """Return Horovod's library among a process's mappings; None when it has not loaded one.

    Raises OSError when the process has ended or there is no permission to read it.
    """
    mapping = next((one for one in mapped if _NAME.search(one.path)), None)
    if mapping is None:
        return None
    path = mapping.path
    # through the process's root folder: it can be in a container
    inside = f"/proc/{pid}/root{path}"
    status = os.stat(inside)  # noqa: PTH116
    segments, loop, writer = _read(path, status.st_ino, status.st_mtime_ns, inside)
    base = mapping.start - _linked(segments, mapping.offset)
    return Library(
        path,
        version(Path(inside).parents[2], "horovod"),
        tuple(range(m.start, m.end) for m in mapped if m.path == path and m.executable),
        tuple(range(base + function.start, base + function.end) for function in loop),
        tuple(range(base + function.start, base + function.end) for function in writer),
    )


def within(words: Sequence[int], code: Sequence[range]) -> Iterator[int]:
    """Those of the words that are addresses in this code."""
    if code:
        first, last = min(part.start for part in code), max(part.stop for part in code)
        for word in words:
            if first < word < last and any(word in part for part in code):
                yield word


def _linked(segments: Sequence[tuple[int, int]], offset: int) -> int:
    """The linked address of a page of the file."""
    page = os.sysconf("SC_PAGE_SIZE")
    for start, address in segments:
        if start // page * page == offset:
            return address // page * page
    return offset


def version(packages: Path, package: str) -> str | None:
    """Return the version of a package that is installed in this folder."""
    try:
        names = [entry.name for entry in packages.iterdir()]
    except OSError:
        return None
    told = re.compile(rf"{package}-([\w.+]+)\.dist-info")
    return next((match[1] for name in names if (match := told.fullmatch(name))), None)


@functools.lru_cache(maxsize=16)
def _read(
    path: str, inode: int, changed: int, inside: str
) -> tuple[Sequence[tuple[int, int]], Sequence[Symbol], Sequence[Symbol]]:
    """Return (offset, linked address) of the loaded parts; the loop's functions, and the timeline
    writer's."""
    del path, inode, changed  # they are the key: ranks share a file
    image = elf.read(inside)
    for functions, names in ((image.local, _LOOP), (image.exported, _CALLED)):
        if loop := [one for one in functions if any(part in one.name for part in names)]:
            return image.segments, loop, [one for one in functions if _WRITER in one.name]
    return image.segments, (), ()
