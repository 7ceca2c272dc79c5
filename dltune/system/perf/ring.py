"""Samples of an event, as the kernel writes them into memory that it shares with the reader.

The kernel appends records to a ring of a power of two of pages and moves its head; the reader moves
the tail. When the reader is slow, records are lost, and the kernel says how many.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import DltuneError, UsageError
from dltune.system import cpulist
from dltune.system.perf import syscall
from dltune.system.perf.events import Event
from dltune.system.perf.group import DISABLE, ENABLE
from dltune.system.perf.opening import Opened, open_event
from dltune.system.proc.entry import text
from dltune.system.proc.threads import threads

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
    online = cpulist.parse(Path("/sys/devices/system/cpu/online").read_text())
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
    flags = syscall.DISABLED | (syscall.INHERIT if inherit else 0)
    return open_event(event, tid=tid, cpu=cpu, flags=flags, period=period, sample_type=SAMPLED)


def _locked_limit() -> str:
    limit = text(Path("/proc/sys/kernel/perf_event_mlock_kb"))
    return f"kernel.perf_event_mlock_kb is {limit}" if limit else "unknown limit"
