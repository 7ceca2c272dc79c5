"""May this process open performance counters? Asked of the kernel, by opening one of each kind."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

# perf_event_open by machine; the C library has no wrapper for it
SYSCALL_NUMBERS = {
    "x86_64": 298,
    "i686": 336,
    "aarch64": 241,
    "riscv64": 241,
    "loongarch64": 241,
    "armv7l": 364,
    "ppc64le": 319,
    "s390x": 331,
}

# from linux/perf_event.h
PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS = 0, 1
PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS = 1, 2
PERF_ATTR_SIZE_VER0 = 64
EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 5, 1 << 6
PERF_FLAG_FD_CLOEXEC = 8

# the highest level of kernel.perf_event_paranoid at which a user may count in its own user space
USER_LEVEL = 2


@dataclass(frozen=True)
class Refused:
    """Why a counter cannot be used, in one sentence, and what would change that."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class PerfEvents:
    """What can be counted in this process's own user space.

    `hardware` and `software`: None when such a counter can be opened and counts.
    `paranoid`: the level of kernel.perf_event_paranoid; None when the kernel has no perf events.
    """

    hardware: Refused | None
    software: Refused | None
    paranoid: int | None


def available(root: Path = Path("/")) -> PerfEvents:
    """Opens, and closes, one hardware and one software counter; `root`: where `proc` is found."""
    try:
        paranoid = int((root / "proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        paranoid = None
    return PerfEvents(
        hardware=_probe(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, paranoid),
        software=_probe(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, paranoid),
        paranoid=paranoid,
    )


def refusal(code: int, paranoid: int | None) -> Refused:
    """What an errno of `perf_event_open` means at that paranoid level."""
    if code in (errno.EACCES, errno.EPERM):
        if paranoid is not None and paranoid > USER_LEVEL:
            return Refused(
                f"kernel.perf_event_paranoid is {paranoid}, which bars users without privilege",
                f"as root: sysctl kernel.perf_event_paranoid={USER_LEVEL}",
            )
        return Refused(
            "the container's seccomp filter or a security policy bars perf_event_open",
            "start the container with perf_event_open allowed (--cap-add PERFMON)",
        )
    if code == errno.ENOSYS:
        if paranoid is None:
            return Refused("the kernel is built without perf events", "use a kernel with them")
        return Refused(
            "the container's seccomp filter hides perf_event_open",
            "start the container with perf_event_open allowed (--cap-add PERFMON)",
        )
    if code in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENXIO):
        return Refused(
            "there is no performance monitoring unit here, as in most virtual machines",
            "nothing, if times are enough; else measure on bare metal or with a virtual PMU",
        )
    if code == errno.EBUSY:
        return Refused("another tool holds the counters", "end the other tool")
    return Refused(
        f"perf_event_open failed: {os.strerror(code)}", "see perf_event_open(2) for this error"
    )


def _probe(kind: int, event: int, paranoid: int | None) -> Refused | None:
    number = SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        return Refused(
            f"the number of perf_event_open is not known for {platform.machine()}",
            "measure on another architecture",
        )
    # type, size, config, sample_period, sample_type, read_format, flags, then zeros
    fields = struct.pack(
        "=IIQQQQQ", kind, PERF_ATTR_SIZE_VER0, event, 0, 0, 0, EXCLUDE_KERNEL | EXCLUDE_HV
    )
    attributes = ctypes.create_string_buffer(fields, PERF_ATTR_SIZE_VER0)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    handle = syscall(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(0),  # this thread
        ctypes.c_int(-1),  # on any CPU
        ctypes.c_int(-1),  # no group
        ctypes.c_ulong(PERF_FLAG_FD_CLOEXEC),
    )
    if handle < 0:
        return refusal(ctypes.get_errno(), paranoid)
    try:
        counted = int.from_bytes(os.read(handle, 8), "little")
    finally:
        os.close(handle)
    # some hypervisors accept a hardware counter and never count
    if kind == PERF_TYPE_HARDWARE and counted == 0:
        return Refused(
            "the counter opens but does not count, as under some hypervisors",
            "nothing, if times are enough; else measure on bare metal",
        )
    return None
