"""Samples of events and context switches, in memory that the kernel shares with the reader.

The kernel appends records to a ring of a power of two of pages and moves its head; the reader moves
the tail. When the reader is slow, records are lost, and the kernel says how many.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import platform
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import DltuneError, UsageError
from dltune.system import kernel_files
from dltune.system.kernel_files import text
from dltune.system.perf import events
from dltune.system.perf.access import Opened, open_event
from dltune.system.perf.counters import DISABLE, ENABLE
from dltune.system.perf.events import Event, parse
from dltune.system.proc.stat import threads

# Samples of an event

# contents of each sample: PERF_SAMPLE_IP, TID, TIME, ADDR, CPU. Not PERIOD, which is known: asked
# for it, the kernel samples every single software event
SAMPLED = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7

# record types
LOST, THROTTLE, UNTHROTTLE, SAMPLE, LOST_SAMPLES = 2, 5, 6, 9, 13

# in the shared memory's first page, in units of 8 bytes
_HEAD, _TAIL = 1024 // 8, 1032 // 8
HEADER = struct.Struct("=IHH")
_SAMPLE = struct.Struct("=QIIQQII")
_SET_OUTPUT = 0x2405  # ioctl


@dataclass(frozen=True)
class Sample:
    """One overflow of the counter.

    `ip`: the thread's position; `address`: accessed by it, for page faults and memory events, else
    0. `time`: seconds of CLOCK_MONOTONIC. `period`: the events that this sample represents.
    """

    ip: int
    pid: int
    tid: int
    time: float
    address: int
    cpu: int
    period: int


@dataclass(frozen=True)
class Lost:
    """So many records did not fit because they were not read in time."""

    count: int


@dataclass(frozen=True)
class Throttled:
    """Sampling stopped (`on`) because it took too much of the CPU, or went on again."""

    time: float
    on: bool


@dataclass(frozen=True)
class Other:
    """A record of a type that nobody asked for; `size` is in bytes, its header included."""

    kind: int
    size: int


Record = Sample | Lost | Throttled | Other


def decode(data: bytes, period: int = 1) -> Record:
    """Decode one record, header and all, of an event sampled with `period`.

    Raises DltuneError when it is shorter than its type needs."""
    kind, _, _ = HEADER.unpack_from(data)
    body = data[HEADER.size :]
    try:
        if kind == SAMPLE:
            ip, pid, tid, time, address, cpu, _ = _SAMPLE.unpack_from(body)
            return Sample(ip, pid, tid, time / 1e9, address, cpu, period)
        if kind == LOST:
            return Lost(struct.unpack_from("=QQ", body)[1])
        if kind == LOST_SAMPLES:
            return Lost(struct.unpack_from("=Q", body)[0])
        if kind in (THROTTLE, UNTHROTTLE):
            return Throttled(struct.unpack_from("=Q", body)[0] / 1e9, kind == THROTTLE)
    except struct.error:
        raise DltuneError(
            f"a perf record of type {kind} is truncated at {len(data)} bytes",
            remedy="report this as a defect of dltune, with the kernel's version (uname -r)",
        ) from None
    return Other(kind, len(data))


def records(ring: memoryview, tail: int, head: int) -> Iterator[bytes]:
    """The records between two positions of a ring (its data alone; any size that is a power of 2).

    Positions count bytes since the beginning and wrap around the ring, as do records. Raises
    DltuneError for a record that is not whole between them, which a kernel never leaves.
    """
    start, size = tail % len(ring), head - tail
    data = bytes(ring[start : start + size])
    data += bytes(ring[: size - len(data)])
    position = 0
    while left := size - position:
        length = HEADER.unpack_from(data, position)[2] if left >= HEADER.size else 0
        if not HEADER.size <= length <= left:
            raise DltuneError(
                f"the perf ring buffer is damaged {left} bytes before its head",
                remedy="report this as a defect of dltune, with the kernel's version (uname -r)",
            )
        yield data[position : position + length]
        position += length


class Memory:
    """The shared memory of a descriptor's ring: its first page and `pages` of data.

    Raises OSError when locking that much memory is not permitted.
    """

    def __init__(self, handle: int, pages: int) -> None:
        self._map = mmap.mmap(handle, mmap.PAGESIZE * (1 + pages))
        self._view = memoryview(self._map)
        self._positions = self._view[: mmap.PAGESIZE].cast("Q")
        self._data = self._view[mmap.PAGESIZE :]
        self._lock = threading.Lock()

    def drain(self) -> list[bytes]:
        """The records that have come since the last call; makes room for more."""
        # a lock given and taken again between two accesses keeps their order on any processor
        with self._lock:
            head = self._positions[_HEAD]
        with self._lock:
            tail = self._positions[_TAIL]
        try:
            return list(records(self._data, tail, head))
        finally:  # damage is reported once
            with self._lock:
                self._positions[_TAIL] = head

    def close(self) -> None:
        for view in (self._positions, self._data, self._view):
            view.release()
        self._map.close()


class Ring(Opened):
    """Samples of one event in one thread, or of one CPU; opened and not yet sampling.

    `period`: a sample each so many events, or so many nanoseconds of a clock. `tid`: the thread, 0
    for the calling thread; -1 with a `cpu` for everything on that CPU. `inherit`: sample also the
    children that the thread starts from now on; the kernel then requires a ring for each CPU, which
    `follow` opens.
    `pages`: of the ring's data, a power of two.

    Raises UsageError when the event cannot be opened or its memory not be locked.
    """

    def __init__(
        self,
        event: Event,
        *,
        period: int = 1,
        tid: int = 0,
        cpu: int = -1,
        inherit: bool = False,
        pages: int = 64,
    ) -> None:
        if pages < 1 or pages & (pages - 1):
            raise ValueError(f"{pages} pages are not a power of two")
        if inherit and cpu < 0:
            raise ValueError("what inherits is sampled on one CPU at a time: see follow")
        self._handles = [_sampling(event, period, tid, cpu, inherit)]
        self._event, self._period = event, period
        try:
            self._memory = Memory(self._handles[0], pages)
        except OSError as error:
            self.close()
            raise UsageError(
                f"{event.name} cannot be sampled: {os.strerror(error.errno or 0)} for "
                f"{mmap.PAGESIZE * (1 + pages)} bytes of locked memory ({_locked_limit()})",
                remedy=(
                    "use a smaller ring buffer, or raise the limit as root: sysctl "
                    "kernel.perf_event_mlock_kb=N"
                ),
            ) from None

    def also(self, *, tid: int, cpu: int, inherit: bool) -> None:
        """Samples of another thread on the same CPU, into this ring."""
        handle = _sampling(self._event, self._period, tid, cpu, inherit)
        self._handles.append(handle)
        fcntl.ioctl(handle, _SET_OUTPUT, self._handles[0])

    def enable(self) -> None:
        for handle in self._handles:
            fcntl.ioctl(handle, ENABLE, 0)

    def disable(self) -> None:
        for handle in self._handles:
            fcntl.ioctl(handle, DISABLE, 0)

    def drain(self) -> list[Record]:
        """Return the records since the last call, in the ring's order; makes room for more."""
        return [decode(data, self._period) for data in self._memory.drain()]

    def counted(self) -> int:
        """Return the number of events until now, sampled or not. The kernel reports a loss with the
        next record that fits, so losses at the end show only here."""
        return sum(int.from_bytes(os.read(handle, 8), sys.byteorder) for handle in self._handles)

    def close(self) -> None:
        if hasattr(self, "_memory"):
            self._memory.close()
        while self._handles:
            os.close(self._handles.pop())


def follow(event: Event, pid: int, *, period: int = 1, pages: int = 64) -> list[Ring]:
    """Rings that sample every thread of a process, and all that they start: one for each CPU.

    Takes a file for each thread on each CPU. Raises UsageError as Ring does, and when the process
    has ended.
    """
    rings: dict[int, Ring] = {}
    tids = threads(pid)
    if not tids:
        raise UsageError(
            f"there is no process {pid}", remedy="name a running process: ps -e, or pgrep -f NAME"
        )
    online = kernel_files.parse_cpulist(Path("/sys/devices/system/cpu/online").read_text())
    try:
        for tid, cpu in itertools.product(sorted(tids), sorted(online)):
            if cpu in rings:
                rings[cpu].also(tid=tid, cpu=cpu, inherit=True)
            else:
                rings[cpu] = Ring(event, period=period, tid=tid, cpu=cpu, inherit=True, pages=pages)
    except UsageError:
        for ring in rings.values():
            ring.close()
        raise
    return list(rings.values())


def _sampling(event: Event, period: int, tid: int, cpu: int, inherit: bool) -> int:
    flags = events.DISABLED | (events.INHERIT if inherit else 0)
    return open_event(event, tid=tid, cpu=cpu, flags=flags, period=period, sample_type=SAMPLED)


def _locked_limit() -> str:
    limit = text(Path("/proc/sys/kernel/perf_event_mlock_kb"))
    return f"kernel.perf_event_mlock_kb is {limit}" if limit else "unknown limit"


# Switches of a thread

# PERF_SAMPLE_TIME, REGS_USER, STACK_USER
_SAMPLED = 1 << 2 | 1 << 12 | 1 << 13
_CONTEXT_SWITCH = 1 << 26  # flag: a record for each switch
# PERF_REG_X86_DX, SP; the kernel gives them in the order of their numbers
_REGISTERS = 1 << 3 | 1 << 7
# bytes of the stack: a frame or two with what they hold
_STACK = 2048
_PAGES = 128

_SWITCH = 14  # type of a record
_OUT = 1 << 13  # of a switch record: off the CPU
_PREEMPTED = 1 << 14
_FORM = struct.Struct("=QQ")  # time, the registers' format
_USER = struct.Struct("=QQQQQ")  # and dx, sp, the size of the stack that follows

SWITCH_EVENT = parse("context-switches")


@dataclass(frozen=True)
class Off:
    """A time off the CPU, from `left` to `back` (seconds of CLOCK_MONOTONIC).

    `preempted`: it would have gone on. `argument`: where on its user stack the third argument of a
    system call there points, in bytes from the top; None when it points elsewhere. `stack`: that
    stack, the innermost word first, when it does.
    """

    left: float
    back: float
    preempted: bool
    stack: bytes
    argument: int | None

    @property
    def timespec(self) -> float | None:
        """Seconds, if the argument points to a struct timespec; None when it cannot."""
        if self.argument is None:
            return None
        seconds, nanoseconds = struct.unpack_from("=qq", self.stack, self.argument)
        return seconds + nanoseconds / 1e9 if seconds >= 0 and 0 <= nanoseconds < 1e9 else None


class Switches(Opened):
    """Switches of the thread `tid`: when it leaves a CPU, when it is back, and its request to the
    kernel. Opened and not yet recording. Use as a context manager.

    The kernel records each switch of the thread, with the time. A switch that takes the thread off
    a CPU brings the third argument of its system call, and the top of its stack. These show the
    intended length of a sleep, and the caller. x86-64 alone: on other architectures registers have
    other numbers.

    Raises UsageError when the kernel or this architecture does not allow it.
    """

    def __init__(self, tid: int) -> None:
        if platform.machine() != "x86_64":
            raise UsageError(
                "context switches can be recorded only on x86-64, and this machine is "
                f"{platform.machine()}",
                remedy=None,
            )
        flags = events.DISABLED | events.SAMPLE_ID_ALL | _CONTEXT_SWITCH | events.EXCLUDE_HV
        self._handle = open_event(
            SWITCH_EVENT,
            tid=tid,
            flags=flags,
            period=1,
            sample_type=_SAMPLED,
            registers=_REGISTERS,
            stack=_STACK,
        )
        try:
            self._memory = Memory(self._handle, _PAGES)
        except OSError as error:
            os.close(self._handle)
            raise UsageError(
                f"context switches cannot be recorded: {os.strerror(error.errno or 0)} for locked "
                "memory",
                remedy="raise the limit as root: sysctl kernel.perf_event_mlock_kb=N",
            ) from None
        self.lost = 0

    def close(self) -> None:
        self._memory.close()
        os.close(self._handle)

    def start(self) -> None:
        fcntl.ioctl(self._handle, ENABLE, 0)

    def stop(self) -> None:
        fcntl.ioctl(self._handle, DISABLE, 0)

    def drain(self) -> list[Off]:
        """The times off the CPU that ended since the last call."""
        times: list[Off] = []
        stack: tuple[bytes, int | None] = (b"", None)
        left: tuple[float, bool] | None = None
        for record in self._memory.drain():
            kind, misc, _ = HEADER.unpack_from(record)
            if kind == LOST:
                self.lost += 1
                left = None
            elif kind == SAMPLE:
                stack = _stack(record)
            elif kind == _SWITCH:
                # the time is all that SAMPLE_ID_ALL adds of what is sampled
                at = int.from_bytes(record[-8:], sys.byteorder)
                if misc & _OUT:
                    left = (at / 1e9, bool(misc & _PREEMPTED))
                elif left is not None:
                    times.append(Off(left[0], at / 1e9, left[1], *stack))
                    left = None
        return times


def _stack(record: bytes) -> tuple[bytes, int | None]:
    """The top of the user's stack, and where on it the third argument points."""
    _, form = _FORM.unpack_from(record, HEADER.size)
    if not form:  # a thread of the kernel has no user space
        return b"", None
    _, _, argument, pointer, size = _USER.unpack_from(record, HEADER.size)
    offset = argument - pointer
    if not 0 <= offset <= size - 16:  # no call, or one with another argument
        return b"", None
    at = HEADER.size + _USER.size
    return record[at : at + size], offset
