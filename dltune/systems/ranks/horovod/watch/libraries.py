"""Native libraries of a running rank: where their functions and threads are, and what these do.

The background thread runs in Horovod's library, or in PyTorch's. Its stack, read from the process's
memory, shows where it is. The functions of a library come from its file (ELF, 64 bits).
"""

from __future__ import annotations

import array
import functools
import itertools
import mmap
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.rank_layout import local_rank, world
from dltune.system.kernel_files import read
from dltune.system.perf.ring import Off, Switches
from dltune.system.proc.process import Mapping as Mapped
from dltune.systems.ranks.horovod.schema import Cycles, distribution

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _SYMTAB, _DYNSYM, _FUNC = 1, 2, 11, 2


@dataclass(frozen=True)
class Symbol:
    """A function: `start` and `end` as linked."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Image:
    """Addresses of functions in a shared library, from its symbol tables and its segments (ELF, 64
    bits). `segments`: (offset in the file, address as linked) of the loaded parts. `local`:
    functions of the full symbol table, which strip(1) takes away; `exported`: those that others can
    call."""

    segments: tuple[tuple[int, int], ...]
    local: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]


def read_image(path: str) -> Image:
    """Raises OSError when the file cannot be read. A file of another kind has no functions."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != _MAGIC:
            return Image((), (), ())
        _, _, _, _, _, segments, sections, _, _, each, count, size, number, _ = _HEADER.unpack_from(
            data
        )
        loaded = [_SEGMENT.unpack_from(data, segments + each * i) for i in range(count)]
        tables = [_SECTION.unpack_from(data, sections + size * i) for i in range(number)]
        return Image(
            tuple((part[2], part[3]) for part in loaded if part[0] == _LOAD),
            tuple(_functions(data, tables, _SYMTAB)),
            tuple(_functions(data, tables, _DYNSYM)),
        )


def _functions(data: mmap.mmap, tables: list[tuple[int, ...]], kind: int) -> Iterator[Symbol]:
    for _, type_, _, _, offset, size, link, *_ in tables:
        if type_ != kind:
            continue
        strings = tables[link][4]
        for name, info, _, section, value, length in _SYMBOL.iter_unpack(
            data[offset : offset + size]
        ):
            if info & 0xF == _FUNC and section and length:
                start = strings + name
                text = data[start : data.find(b"\0", start)].decode(errors="replace")
                yield Symbol(text, value, value + length)


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


def find_horovod(pid: int, mapped: Sequence[Mapped]) -> Library | None:
    """Return Horovod's library among a process's mappings; None when it has not loaded one.

    Raises OSError when the process has ended or there is no permission to read it.

    The library has a file and the address of its background loop. The background thread runs
    `BackgroundThreadLoop`, and the function that the compiler made part of it (`RunLoopOnce`),
    until Horovod is shut down: return addresses into it stay on that thread's stack. The library's
    symbol table shows where they are. A library stripped of local symbols still exports functions
    that only the loop calls.
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
    image = read_image(inside)
    for functions, names in ((image.local, _LOOP), (image.exported, _CALLED)):
        if loop := [one for one in functions if any(part in one.name for part in names)]:
            return image.segments, loop, [one for one in functions if _WRITER in one.name]
    return image.segments, (), ()


_TORCH_LIBRARY_NAME = re.compile(r"/torch/lib/libtorch_cpu\.so$")
# of OpenMP, whose threads have no separate names
OPENMP = re.compile(r"/lib(gomp|iomp5|omp)[^/]*\.so[^/]*$")
# threads by the names that gloo and PyTorch give them: the one that waits at the sockets, which
# has none in older releases; those that run the collectives that DDP asks for, in turns
# (ProcessGroupGloo.cpp); what else is there for the ranks; the one that goes backward
LOOP = re.compile(r"gloo_tcp_loop")
RUNNER = re.compile(r"pt_gloo_runloop")
HELPER = re.compile(r"pt_(tcpstore|dist_engine|workerserver)")
BACKWARD = re.compile(r"pt_autograd")


def find_torch(pid: int, mapped: Sequence[Mapped], environ: Mapping[str, str]) -> Library | None:
    """PyTorch's library among a process's mappings; None when it has not loaded it, or is one of
    no several ranks."""
    mapping = next((one for one in mapped if _TORCH_LIBRARY_NAME.search(one.path)), None)
    if mapping is None or not _is_rank(own(environ)):
        return None
    packages = Path(f"/proc/{pid}/root{mapping.path}").parents[2]
    return Library(mapping.path, version(packages, "torch"), (), (), (), is_horovod=False)


def own(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables without those of other launchers, such as srun starting torchrun:
    PyTorch reads only torchrun's."""
    pairs = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if not all(map(environ.get, pairs[0])):
        return environ
    return {name: environ[name] for pair in pairs if all(map(environ.get, pair)) for name in pair}


def _is_rank(environ: Mapping[str, str]) -> bool:
    try:
        local_rank(environ)
        return world(environ).size > 1
    except UsageError:
        return False


# bytes of a stack that are read, from its top: more than MPI, gloo and TensorFlow's pools put there
DEPTH = 64 << 10
# bytes of the longest call through a register or a pointer on x86-64
_LONGEST_CALL = 7


class Memory:
    """Contents of another process's memory, read without stopping it. Use as a context manager.
    Raises OSError without permission to read the process.

    A thread that sleeps or waits shows its stack pointer in /proc/PID/task/TID/syscall, and
    /proc/PID/mem holds its stack. A thread that runs shows nothing, and must be sampled again.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def read(self, at: int, size: int) -> bytes:
        """Fewer bytes where a mapping ends; none where there is nothing."""
        try:
            return os.pread(self._handle, size, at)
        except (OSError, OverflowError):
            return b""

    def stack(self, tid: int) -> Sequence[int] | None:
        """The words of a thread's stack, the innermost first; None while it runs."""
        fields = (read(f"/proc/{self.pid}/task/{tid}/syscall") or b"").split()
        # the call's number and arguments, the stack pointer, the program counter; or "running"
        if len(fields) < 3:
            return None
        data = self.read(int(fields[-2], 16), DEPTH)
        return array.array("Q", data[: len(data) // 8 * 8]) if data else None

    def is_return(self, address: int) -> bool:
        """True if the instruction before can be a call. Elsewhere than on x86-64 any address can be
        a return address."""
        if os.uname().machine != "x86_64":
            return True
        code = self.read(address - _LONGEST_CALL, _LONGEST_CALL)
        if len(code) < _LONGEST_CALL:
            return False
        # E8 and a distance; FF /2 with an operand of any length
        return code[-5] == 0xE8 or any(
            code[-length] == 0xFF and code[1 - length] >> 3 & 7 == 2
            for length in range(2, _LONGEST_CALL + 1)
        )


# seconds that a window lasts, and from the first one's begin to the second's; from one to the next
# it takes GROWTH times as long as before, LONGEST seconds at most
WINDOW, EVERY, GROWTH, LONGEST = 0.5, 6.0, 1.3, 30.0
# of a cycle: starts of cycles that are nearer than this count as one
_SAME = 0.2


class Sleeps:
    """The sleeps of one background thread between cycles: how long it asked for, and when it ran
    again. `refused`: why they cannot be seen.

    A cycle begins when the thread has slept for the rest of HOROVOD_CYCLE_TIME since the previous
    cycle began. It asks for that from the frame of its loop, which distinguishes these sleeps from
    its other sleeps and waits, in MPI or gloo. The requested time also shows when the previous
    cycle began: a cycle that began without a sleep is seen that way, unless the next did too.

    All switches of the thread are recorded in short windows, far apart, and farther the longer it
    is watched: recording them slows the thread itself.
    """

    def __init__(self, tid: int, library: Library, setting: float) -> None:
        self.refused: str | None = None
        self._loop, self._setting = library.loop, setting
        self._switches: Switches | None = None
        try:
            self._switches = Switches(tid)
        except UsageError as error:
            self.refused = str(error) + (f" ({error.remedy})" if error.remedy else "")
        self._recording = False
        self._times: list[Off] = []
        self._late: list[float] = []
        self._periods: list[float] = []
        self._due = time.monotonic()
        self._every = EVERY

    def look(self) -> bool:
        """Begin and end windows when they are due, and take the records. True while a window is
        open: call it ten times a second then, so that the kernel has room for more."""
        now = time.monotonic()
        if self._switches is None:
            return False
        if self._recording:
            self._drain(self._switches)
            if now >= self._due:
                self._end(self._switches)
                self._due = now + self._every - WINDOW
                self._every = min(GROWTH * self._every, LONGEST)
        elif now >= self._due:
            self._switches.start()
            self._recording = True
            self._due = now + WINDOW
        return self._recording

    def close(self) -> None:
        if self._switches is not None:
            if self._recording:
                self._end(self._switches)
            self._switches.close()
            self._switches = None

    def cycles(self) -> Cycles | None:
        """None when no cycle was seen."""
        if not self._periods:
            return None
        return Cycles(
            setting=self._setting,
            rate=len(self._periods) / sum(self._periods),
            period=distribution(self._periods),
            oversleep=distribution(self._late) if self._late else None,
            empty=None,
        )

    def _end(self, switches: Switches) -> None:
        switches.stop()
        self._drain(switches)
        self._take()
        self._recording = False

    def _drain(self, switches: Switches) -> None:
        lost = switches.lost
        found = switches.drain()
        if switches.lost > lost:  # what came before and after does not follow on each other
            self._take()
        else:
            self._times += found

    def _take(self) -> None:
        starts: list[float] = []
        for off in self._times:
            asked = off.timespec
            if off.preempted or asked is None or not self._from_loop(off):
                continue
            self._late.append(max(0.0, off.back - off.left - asked))
            before = off.left + asked - self._setting
            if starts and before - starts[-1] > _SAME * self._setting:
                starts.append(before)
            starts.append(off.back)
        self._periods += [b - a for a, b in itertools.pairwise(starts)]
        self._times.clear()

    def _from_loop(self, off: Off) -> bool:
        """True if the request is in the loop's frame: its return address comes before it."""
        assert off.argument is not None
        words = array.array("Q", off.stack[: off.argument // 8 * 8])
        return next(within(words, self._loop), None) is not None
