"""Access to performance counters: check it, open an event, and explain the kernel's refusals.

`available` checks that this process can open counters, by opening one of each kind. Each refusal of
perf_event_open is explained in one sentence with its remedy.
"""

from __future__ import annotations

import abc
import errno
import os
import platform
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dltune.base.errors import UsageError
from dltune.system.kernel_files import text
from dltune.system.perf import events
from dltune.system.perf.events import HARDWARE, SOFTWARE, Event

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
        hardware=_probe(events.TYPE_HARDWARE, HARDWARE["instructions"], paranoid),
        software=_probe(events.TYPE_SOFTWARE, SOFTWARE["page-faults"], paranoid),
        paranoid=paranoid,
    )


def _probe(kind: int, config: int, paranoid: int | None) -> Refused | None:
    if platform.machine() not in events.NUMBERS:
        return Refused(
            "dltune does not support perf events on this architecture",
            "measure on x86-64 or aarch64",
        )
    try:
        handle = events.perf_event_open(
            kind, config, flags=events.EXCLUDE_KERNEL | events.EXCLUDE_HV
        )
    except OSError as error:
        return refusal(error.errno or 0, paranoid)
    try:
        counted = int.from_bytes(os.read(handle, 8), sys.byteorder)
    finally:
        os.close(handle)
    # some hypervisors accept a hardware counter and never count
    if kind == events.TYPE_HARDWARE and counted == 0:
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


# Opening an event


class Opened(abc.ABC):
    """What is open until it is closed; as a context, at its end."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_event(event: Event, *, tid: int = 0, leader: int = -1, flags: int = 0, **more: int) -> int:
    """The event's descriptor, as events.perf_event_open. Raises UsageError, which tells why."""
    if event.exclude_kernel:
        flags |= events.EXCLUDE_KERNEL | events.EXCLUDE_HV
    try:
        return events.perf_event_open(
            event.type,
            event.config,
            config1=event.config1,
            config2=event.config2,
            flags=flags,
            tid=tid,
            leader=leader,
            **more,
        )
    except OSError as error:
        raise refused(event, error.errno or 0, tid=tid, leader=leader) from None


def refused(event: Event, code: int, *, tid: int = 0, leader: int = -1) -> UsageError:
    """The error that tells why `event` could not be opened for `tid`, with a group's `leader`."""
    why = _why(event, code, tid, leader)
    return UsageError(f"{event.name} cannot be counted: {why.reason}", remedy=why.remedy)


def _why(event: Event, code: int, tid: int, leader: int) -> Refused:
    if code in NO_SUCH and event.software:
        return Refused("this kernel does not have the event", "leave the event out")
    if code == errno.EINVAL and leader >= 0:
        return Refused(
            "the CPU has too few counters for all events of the group", "count the events in turns"
        )
    if code == errno.EINVAL and event.type > events.TYPE_RAW:
        return Refused(
            "its unit counts a whole chip instead of a thread, or cannot exclude the kernel",
            "write the event without :u, or leave it out",
        )
    if code in (*NO_SUCH, errno.EINVAL) and available().hardware is None:
        return Refused(
            "this CPU does not have the event, or counts it for a whole chip instead of a thread",
            "leave the event out, or choose another from docs/reference/events.md",
        )
    if code == errno.ESRCH:
        return Refused(f"thread {tid} has ended", "name a running thread")
    paranoid = paranoid_level()
    level = CPU_LEVEL if tid == -1 else USER_LEVEL if event.exclude_kernel else KERNEL_LEVEL
    if code == errno.EACCES and tid > 0 and paranoid is not None and paranoid <= level:
        return Refused(
            f"thread {tid} belongs to another user", "run dltune as that user, or as root"
        )
    return refusal(code, paranoid, level)
