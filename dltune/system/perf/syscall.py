"""The system call perf_event_open, for which the C library has no wrapper.

Numbers are those of linux/perf_event.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct

# perf_event_open by machine
NUMBERS = {
    "x86_64": 298,
    "i686": 336,
    "aarch64": 241,
    "riscv64": 241,
    "loongarch64": 241,
    "armv7l": 364,
    "ppc64le": 319,
    "s390x": 331,
}

TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_TRACEPOINT, TYPE_CACHE, TYPE_RAW = 0, 1, 2, 3, 4
SOFTWARE_DUMMY = 9

# bits of an event's flags
DISABLED, INHERIT = 1 << 0, 1 << 1
EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 5, 1 << 6
SAMPLE_ID_ALL, USE_CLOCKID = 1 << 18, 1 << 25

# what a read returns
FORMAT_ENABLED, FORMAT_RUNNING, FORMAT_GROUP = 1 << 0, 1 << 1, 1 << 3

FLAG_FD_CLOEXEC = 8
# up to and including `clockid` (Linux 4.1)
ATTR_SIZE = 96
CLOCK_MONOTONIC = 1


def perf_event_open(
    kind: int,
    config: int,
    *,
    config1: int = 0,
    config2: int = 0,
    flags: int = 0,
    read_format: int = 0,
    period: int = 0,
    sample_type: int = 0,
    registers: int = 0,
    stack: int = 0,
    tid: int = 0,
    cpu: int = -1,
    leader: int = -1,
) -> int:
    """The descriptor of a new event; times of its samples are CLOCK_MONOTONIC.

    `registers`: of user space, a bit each (asm/perf_regs.h); `stack`: bytes of the user's stack.
    `tid`: the thread, 0 for the calling one, -1 for all (with a `cpu`). Raises OSError with the
    kernel's errno, and ENOSYS on an architecture whose number of the call is not known.
    """
    number = NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if sample_type:
        flags |= USE_CLOCKID
    attributes = ctypes.create_string_buffer(
        struct.pack(
            "=IIQQQQQIIQQQQIi",
            kind,
            ATTR_SIZE,
            config,
            period,
            sample_type,
            read_format,
            flags,
            0,  # wake up readers: never, they look
            0,  # breakpoints
            config1,
            config2,
            0,  # branches
            registers,
            stack,
            CLOCK_MONOTONIC if sample_type else 0,
        ),
        ATTR_SIZE,
    )
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    handle = call(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(tid),
        ctypes.c_int(cpu),
        ctypes.c_int(leader),
        ctypes.c_ulong(FLAG_FD_CLOEXEC),
    )
    if handle < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(handle)


def may_count_kernel() -> bool:
    """Whether this process may count what the kernel does for it. The kernel is asked: in a user
    namespace the capabilities that a process reads of itself are not those that count."""
    with contextlib.suppress(OSError):
        os.close(perf_event_open(TYPE_SOFTWARE, SOFTWARE_DUMMY))
        return True
    return False
