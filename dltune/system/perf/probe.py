"""Check that this process can open performance counters, by opening one of each kind, and explain
the kernel's refusals of perf_event_open, each in one sentence with its remedy."""

from __future__ import annotations

import errno
import os
import platform
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from dltune.system.perf import syscall
from dltune.system.perf.events import HARDWARE, SOFTWARE
from dltune.system.proc.entry import text

# the highest levels of kernel.perf_event_paranoid at which an unprivileged user is permitted to
# count in its own user space, in the kernel's work for it, and on a whole CPU
USER_LEVEL, KERNEL_LEVEL, CPU_LEVEL = 2, 1, 0

NO_SUCH = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENXIO)


@dataclass(frozen=True)
class Refused:
    """The reason why a counter cannot be used, in one sentence, and the remedy."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class PerfEvents:
    """The counters available in this process's own user space.

    `hardware` and `software`: None when such a counter can be opened and counts.
    `paranoid`: the level of kernel.perf_event_paranoid; None when the kernel has no perf events.
    """

    hardware: Refused | None
    software: Refused | None
    paranoid: int | None


def available(root: Path = Path("/")) -> PerfEvents:
    """Open and close one hardware and one software counter; `root`: where `proc` is found."""
    paranoid = paranoid_level(root)
    return PerfEvents(
        hardware=_probe(syscall.TYPE_HARDWARE, HARDWARE["instructions"], paranoid),
        software=_probe(syscall.TYPE_SOFTWARE, SOFTWARE["page-faults"], paranoid),
        paranoid=paranoid,
    )


def _probe(kind: int, config: int, paranoid: int | None) -> Refused | None:
    if platform.machine() not in syscall.NUMBERS:
        return Refused(
            "dltune does not support perf events on this architecture",
            "measure on x86-64 or aarch64",
        )
    try:
        handle = syscall.perf_event_open(
            kind, config, flags=syscall.EXCLUDE_KERNEL | syscall.EXCLUDE_HV
        )
    except OSError as error:
        return refusal(error.errno or 0, paranoid)
    try:
        counted = int.from_bytes(os.read(handle, 8), sys.byteorder)
    finally:
        os.close(handle)
    # some hypervisors accept a hardware counter and never count
    if kind == syscall.TYPE_HARDWARE and counted == 0:
        return Refused(
            "the counter opens but does not count, as under some hypervisors",
            "leave hardware events out (times do not need them), or measure on bare metal",
        )
    return None


def paranoid_level(root: Path = Path("/")) -> int | None:
    """kernel.perf_event_paranoid; None when the kernel has no perf events."""
    try:
        return int(text(root / "proc/sys/kernel/perf_event_paranoid"))
    except ValueError:
        return None


def refusal(code: int, paranoid: int | None, level: int = USER_LEVEL) -> Refused:
    """Explain an errno of perf_event_open at that paranoid level.

    `level`: the highest level that permits users the requested counter.
    """
    if code in (errno.EACCES, errno.EPERM):
        # at a level between these two, EPERM is a filter's: the kernel itself answers EACCES
        if paranoid is not None and paranoid > (level if code == errno.EACCES else USER_LEVEL):
            barred = {
                USER_LEVEL: "allows only root to count events",
                KERNEL_LEVEL: "allows only root to count events in the kernel",
                CPU_LEVEL: "allows only root to count events of whole CPUs",
            }
            return Refused(
                f"kernel.perf_event_paranoid is {paranoid}, which {barred[level]}",
                f"as root: sysctl kernel.perf_event_paranoid={level}",
            )
        return Refused(
            "the container's seccomp filter or a security policy blocks perf_event_open",
            "start the container with perf_event_open allowed (--cap-add PERFMON)",
        )
    if code == errno.ENOSYS:
        if paranoid is None:
            return Refused(
                "the kernel was built without perf events", "use a kernel with CONFIG_PERF_EVENTS"
            )
        return Refused(
            "the container's seccomp filter hides perf_event_open",
            "start the container with perf_event_open allowed (--cap-add PERFMON)",
        )
    if code in NO_SUCH:
        return Refused(
            "this machine has no performance monitoring unit, like most virtual machines",
            "leave hardware events out (times do not need them), or measure on bare metal or with "
            "a virtual PMU",
        )
    if code == errno.EBUSY:
        return Refused("another tool uses the counters", "end the other tool")
    if code == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Refused(
            f"the limit of {limit} open files is reached: each counter of each thread is an open "
            "file",
            f"count fewer events, or raise the limit: ulimit -n {4 * limit}",
        )
    if code == errno.ESRCH:
        return Refused("the thread has ended", "name a running thread")
    return Refused(
        f"perf_event_open failed: {os.strerror(code)}", "see perf_event_open(2) for this error"
    )
