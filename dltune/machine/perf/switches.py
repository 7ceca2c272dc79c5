"""When one thread leaves a CPU and when it is back, and what it asked of the kernel.

The kernel records each switch of the thread, with the time. With each that takes it off a CPU come
the third argument of the system call it is in, and the top of its stack, so that a sleep tells how
long it was meant to be, and who asked for it. x86-64 alone: on others registers have other numbers.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import struct
import sys
import threading
from dataclasses import dataclass

from dltune.errors import DltuneError, UsageError
from dltune.machine.perf import syscall
from dltune.machine.perf.events import SOFTWARE, Event
from dltune.machine.perf.group import DISABLE, ENABLE
from dltune.machine.perf.opening import refused

# PERF_SAMPLE_TIME, REGS_USER, STACK_USER
_SAMPLED = 1 << 2 | 1 << 12 | 1 << 13
_CONTEXT_SWITCH = 1 << 26  # flag: a record for each switch
# PERF_REG_X86_DX, SP; the kernel gives them in the order of their numbers
_REGISTERS = 1 << 3 | 1 << 7
# bytes of the stack: a frame or two with what they hold
_STACK = 2048
_PAGES = 128

_SAMPLE, _SWITCH, _LOST = 9, 14, 2
_OUT = 1 << 13  # of a switch record: off the CPU
_PREEMPTED = 1 << 14
_HEADER = struct.Struct("=IHH")
_FORM = struct.Struct("=QQ")  # time, the registers' format
_USER = struct.Struct("=QQQQQ")  # and dx, sp, the size of the stack that follows
_HEAD, _TAIL = 1024 // 8, 1032 // 8

EVENT = Event("context-switches", syscall.TYPE_SOFTWARE, SOFTWARE["context-switches"])


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


class Switches:
    """Switches of the thread `tid`; opened and not yet recording. Use as a context manager.

    Raises UsageError when the kernel or this architecture does not allow it.
    """

    def __init__(self, tid: int) -> None:
        if platform.machine() != "x86_64":
            raise UsageError(f"switches are recorded on x86-64 alone, this is {platform.machine()}")
        flags = syscall.DISABLED | syscall.SAMPLE_ID_ALL | _CONTEXT_SWITCH | syscall.EXCLUDE_HV
        try:
            self._handle = syscall.perf_event_open(
                EVENT.type,
                EVENT.config,
                flags=flags,
                period=1,
                sample_type=_SAMPLED,
                registers=_REGISTERS,
                stack=_STACK,
                tid=tid,
            )
        except OSError as error:
            raise refused(EVENT, error.errno or 0, tid=tid) from None
        try:
            self._map = mmap.mmap(self._handle, mmap.PAGESIZE * (1 + _PAGES))
        except OSError as error:
            os.close(self._handle)
            raise UsageError(
                f"switches cannot be recorded: {os.strerror(error.errno or 0)} for locked memory",
                remedy="as root: raise kernel.perf_event_mlock_kb",
            ) from None
        self._view = memoryview(self._map)
        self._positions = self._view[: mmap.PAGESIZE].cast("Q")
        self._data = self._view[mmap.PAGESIZE :]
        self._lock = threading.Lock()
        self.lost = 0

    def __enter__(self) -> Switches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for view in (self._positions, self._data, self._view):
            view.release()
        self._map.close()
        os.close(self._handle)

    def start(self) -> None:
        fcntl.ioctl(self._handle, ENABLE, 0)

    def stop(self) -> None:
        fcntl.ioctl(self._handle, DISABLE, 0)

    def drain(self) -> list[Off]:
        """The times off the CPU that ended since the last call."""
        # a lock given and taken again between two accesses keeps their order on any processor
        with self._lock:
            head = self._positions[_HEAD]
        with self._lock:
            tail = self._positions[_TAIL]
            start, size = tail % len(self._data), head - tail
            data = bytes(self._data[start : start + size])
            data += bytes(self._data[: size - len(data)])
        with self._lock:
            self._positions[_TAIL] = head
        return self._paired(data)

    def _paired(self, data: bytes) -> list[Off]:
        times: list[Off] = []
        stack: tuple[bytes, int | None] = (b"", None)
        left: tuple[float, bool] | None = None
        position = 0
        while position < len(data):
            kind, misc, length = _HEADER.unpack_from(data, position)
            if length < _HEADER.size:
                raise DltuneError(
                    f"the perf ring is damaged {len(data) - position} bytes before its head"
                )
            if kind == _LOST:
                self.lost += 1
                left = None
            elif kind == _SAMPLE:
                stack = _stack(data, position + _HEADER.size)
            elif kind == _SWITCH:
                # the time is all that SAMPLE_ID_ALL adds of what is sampled
                at = int.from_bytes(data[position + length - 8 : position + length], sys.byteorder)
                if misc & _OUT:
                    left = (at / 1e9, bool(misc & _PREEMPTED))
                elif left is not None:
                    times.append(Off(left[0], at / 1e9, left[1], *stack))
                    left = None
            position += length
        return times


def _stack(data: bytes, at: int) -> tuple[bytes, int | None]:
    """The top of the user's stack, and where on it the third argument points."""
    _, form = _FORM.unpack_from(data, at)
    if not form:  # a thread of the kernel has no user space
        return b"", None
    _, _, argument, pointer, size = _USER.unpack_from(data, at)
    offset = argument - pointer
    if not 0 <= offset <= size - 16:  # no call, or one with another argument
        return b"", None
    at += _USER.size
    return data[at : at + size], offset
