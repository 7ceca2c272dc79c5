"""Open an event, or say in one sentence why it cannot be."""

from __future__ import annotations

import abc
import errno
from typing import Self

from dltune.base.errors import UsageError
from dltune.system.perf import probe, syscall
from dltune.system.perf.events import Event
from dltune.system.perf.probe import (
    CPU_LEVEL,
    KERNEL_LEVEL,
    USER_LEVEL,
    Refused,
)


class Opened(abc.ABC):
    """What is open until it is closed; as a context, at its end."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_event(event: Event, *, tid: int = 0, leader: int = -1, flags: int = 0, **more: int) -> int:
    """The event's descriptor, as syscall.perf_event_open. Raises UsageError, which tells why."""
    if event.exclude_kernel:
        flags |= syscall.EXCLUDE_KERNEL | syscall.EXCLUDE_HV
    try:
        return syscall.perf_event_open(
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
    if code in probe.NO_SUCH and event.software:
        return Refused("this kernel does not have the event", "leave the event out")
    if code == errno.EINVAL and leader >= 0:
        return Refused(
            "the CPU has too few counters for all events of the group", "count the events in turns"
        )
    if code == errno.EINVAL and event.type > syscall.TYPE_RAW:
        return Refused(
            "its unit counts a whole chip instead of a thread, or cannot exclude the kernel",
            "write the event without :u, or leave it out",
        )
    if code in (*probe.NO_SUCH, errno.EINVAL) and probe.available().hardware is None:
        return Refused(
            "this CPU does not have the event, or counts it for a whole chip instead of a thread",
            "leave the event out, or choose another from docs/reference/events.md",
        )
    if code == errno.ESRCH:
        return Refused(f"thread {tid} has ended", "name a running thread")
    paranoid = probe.paranoid_level()
    level = CPU_LEVEL if tid == -1 else USER_LEVEL if event.exclude_kernel else KERNEL_LEVEL
    if code == errno.EACCES and tid > 0 and paranoid is not None and paranoid <= level:
        return Refused(
            f"thread {tid} belongs to another user", "run dltune as that user, or as root"
        )
    return probe.refusal(code, paranoid, level)
