"""When one thread leaves a CPU and when it is back, and what it asked of the kernel.

The kernel records each switch of the thread, with the time. With each that takes it off a CPU come
the third argument of the system call it is in, and the top of its stack, so that a sleep tells how
long it was meant to be, and who asked for it. x86-64 alone: on others registers have other numbers.
"""

from __future__ import annotations

import fcntl
import os
import platform
import struct
import sys
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.system.perf import syscall
from dltune.system.perf.events import parse
from dltune.system.perf.group import DISABLE, ENABLE
from dltune.system.perf.opening import Opened, open_event
from dltune.system.perf.ring import (
    HEADER,
    LOST,
    SAMPLE,
    Memory,
)

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

EVENT = parse("context-switches")


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
    """Switches of the thread `tid`; opened and not yet recording. Use as a context manager.

    Raises UsageError when the kernel or this architecture does not allow it.
    """

    def __init__(self, tid: int) -> None:
        if platform.machine() != "x86_64":
            raise UsageError(
                "context switches can be recorded only on x86-64, and this machine is "
                f"{platform.machine()}",
                remedy=None,
            )
        flags = syscall.DISABLED | syscall.SAMPLE_ID_ALL | _CONTEXT_SWITCH | syscall.EXCLUDE_HV
        self._handle = open_event(
            EVENT,
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
