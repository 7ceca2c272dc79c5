"""Events that the kernel counts together or not at all, and the fewest groups for many events."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.base.errors import DltuneError, UsageError
from dltune.system.perf import syscall
from dltune.system.perf.events import Event
from dltune.system.perf.matroid import partition
from dltune.system.perf.opening import Opened, open_event

# ioctls of a perf event, and their flag for the whole group
ENABLE, DISABLE = 0x2400, 0x2401
WHOLE_GROUP = 1

READ_FORMAT = syscall.FORMAT_GROUP | syscall.FORMAT_ENABLED | syscall.FORMAT_RUNNING
# as many as the plugin counts in one group (native/core/counters.h)
LARGEST = 16
# the share below which a group has shared counters with another
ALL_THE_TIME = 0.999
# most seconds that an inheriting thread takes to end, preempted halfway on a loaded machine
ENDING = 5.0


@dataclass(frozen=True)
class Reading:
    """The counts of a group, in the order of its events.

    `enabled`: seconds in which the group was to count while its thread was on a CPU. `running`:
    seconds of these in which it had counters.
    """

    enabled: float
    running: float
    values: tuple[int, ...]

    @property
    def share(self) -> float:
        """The part of the time in which it really counted; 1 for a group never enabled."""
        return min(1.0, self.running / self.enabled) if self.enabled else 1.0

    def scaled(self) -> tuple[float, ...] | None:
        """The values as if it had counted all the time; None when it never had counters."""
        if self.share == 0:
            return None
        return tuple(value / self.share for value in self.values)

    def since(self, earlier: Reading) -> Reading:
        """Return the counts after `earlier`, a reading of the same group."""
        return Reading(
            max(0.0, self.enabled - earlier.enabled),
            max(0.0, self.running - earlier.running),
            tuple(a - b for a, b in zip(self.values, earlier.values, strict=True)),
        )


def decode(data: bytes, events: int) -> Reading:
    """Decode a group's read: number of events, nanoseconds enabled and running, a value for each.

    Raises DltuneError when it does not hold that many events: the kernel reads nothing from a group
    whose counters it has taken away.
    """
    layout = struct.Struct(f"={3 + events}Q")
    if len(data) != layout.size:
        raise DltuneError(
            "the kernel took the counters away during the run",
            remedy="end other tools that use counters, and measure again",
        )
    number, enabled, running, *values = layout.unpack(data)
    if number != events:
        raise DltuneError(
            f"the kernel returned {number} counts for a group of {events} events",
            remedy="report this as a defect of dltune, with the kernel's version (uname -r)",
        )
    return Reading(enabled / 1e9, running / 1e9, tuple(values))


class Group(Opened):
    """Events of one thread, opened and not yet counting.

    `tid`: the thread (of this or another process), 0 for the calling thread; -1 with a `cpu` for
    everything on that CPU. `inherit`: count also the threads and processes that the thread starts
    from now on; their counts are added when they end, or, while they run, when the group is read.

    Raises UsageError when an event cannot be opened. Close it, or use it as a context.
    """

    def __init__(
        self, events: Sequence[Event], *, tid: int = 0, cpu: int = -1, inherit: bool = False
    ) -> None:
        if not events:
            raise ValueError("a group without events")
        self.events = tuple(events)
        self._handles: list[int] = []
        inherited = syscall.INHERIT if inherit else 0
        for event in self.events:
            leader = self._leader
            flags = inherited | (syscall.DISABLED if leader < 0 else 0)
            try:
                self._handles.append(
                    open_event(
                        event, tid=tid, cpu=cpu, leader=leader, flags=flags, read_format=READ_FORMAT
                    )
                )
            except UsageError:
                self.close()
                raise

    @property
    def _leader(self) -> int:
        return self._handles[0] if self._handles else -1

    def enable(self) -> None:
        fcntl.ioctl(self._leader, ENABLE, WHOLE_GROUP)

    def disable(self) -> None:
        fcntl.ioctl(self._leader, DISABLE, WHOLE_GROUP)

    def read(self) -> Reading:
        """Return the counts until now. Raises DltuneError when the kernel took the counters.

        The kernel reads nothing (ECHILD) while an inheriting thread or process is just ending.
        """
        until = time.monotonic() + ENDING
        while True:
            try:
                data = os.read(self._leader, 8 * (3 + len(self.events)))
            except ChildProcessError:
                if time.monotonic() > until:
                    raise DltuneError(
                        f"counts of child threads could not be read for {ENDING:g} s: the kernel "
                        "has not attached all events to them",
                        remedy="count fewer events",
                    ) from None
                os.sched_yield()
            else:
                return decode(data, len(self.events))

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def split(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Split `events` into the fewest groups that this CPU really counts, by counting with them.

    Only the kernel knows which counters are free (some can be in use, also by its own watchdog).
    So each returned group was opened on the calling thread and had counters all the time it was
    enabled. Software events need no counter: they join the first group that has room among its
    LARGEST events.

    Raises UsageError for an event that cannot be counted even by itself.
    """
    units = _units([event for event in events if not event.software])
    for unit in units:
        check(unit)

    def together(chosen: Sequence[tuple[Event, ...]]) -> bool:
        flat = [event for unit in chosen for event in unit]
        return len(flat) <= LARGEST and counts(flat)

    groups = [[event for unit in chosen for event in unit] for chosen in partition(units, together)]
    for event in events:
        if event.software:
            check([event])
            if all(len(group) >= LARGEST for group in groups):
                groups.append([])
            next(group for group in groups if len(group) < LARGEST).append(event)
    return [tuple(group) for group in groups]


def check(events: Sequence[Event]) -> None:
    """Raise UsageError, in one sentence, when this group cannot be counted on this thread."""
    Group(events).close()
    if not counts(events):
        names = ", ".join(event.name for event in events)
        raise UsageError(
            f"{names} cannot be counted: the counter opens but does not count, as under some "
            "hypervisors or while another tool uses the counters",
            remedy="end other tools that use counters, or count software events",
        )


def counts(events: Sequence[Event]) -> bool:
    """Return True if these are counted together: the group opens and has counters all the time."""
    try:
        with Group(events) as group:
            group.enable()
            sum(range(1000))
            group.disable()
            reading = group.read()
    except DltuneError:
        return False
    return reading.enabled > 0 and reading.share > ALL_THE_TIME


def _units(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Return the events that must stay together: Intel's top-down metrics are read under their
    leader `slots`."""
    metrics = [event for event in events if event.name.startswith("topdown-")]
    slots = [event for event in events if event.name == "slots"]
    if not slots or not metrics:
        return [(event,) for event in events]
    others = [(event,) for event in events if event not in (*slots, *metrics)]
    return [(*slots, *metrics), *others]
