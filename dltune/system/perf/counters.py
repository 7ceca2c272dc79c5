"""Counters of events: groups counted together, counters read in user space, and a self-test.

A `Group` holds events that the kernel counts together or not at all; `split` finds the fewest
groups for many events. A `UserCounter` is a counter of the calling thread. `self_test` compares
counters with work whose counts are known, so that their figures can be believed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import mmap
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from dltune.base.errors import DltuneError, UsageError
from dltune.native.binding import bound
from dltune.system.perf import access, events
from dltune.system.perf.access import Opened, open_event
from dltune.system.perf.events import (
    DISABLED,
    FORMAT_ENABLED,
    FORMAT_GROUP,
    FORMAT_RUNNING,
    INHERIT,
    Event,
    parse,
)

T = TypeVar("T")

# The fewest groups for many events, by matroid partitioning


def partition(
    elements: Sequence[T], independent: Callable[[Sequence[T]], bool]
) -> list[tuple[T, ...]]:
    """Return `elements` in the fewest sets of which each is `independent`, each in the order given:
    the fewest independent sets that hold all elements of a matroid.

    Which events fit a CPU's counters together is a transversal matroid: a set fits when each event
    can be given a counter of its own among those that can count it. Edmonds' matroid partitioning
    (1965) finds the fewest sets with polynomially many questions, where trying all ways would take
    exponentially many.

    Each element must be independent by itself. Where `independent` is not quite a matroid's (two
    events that share a register, say), each set still is, and there may be more than the fewest.
    """

    @functools.cache
    def fits(members: frozenset[int]) -> bool:
        return independent([elements[i] for i in sorted(members)])

    sets: list[frozenset[int]] = []
    for element in range(len(elements)):
        sets = _with(sets, element, fits) or [*sets, frozenset({element})]
    return [tuple(elements[i] for i in sorted(members)) for members in sets]


def _with(
    sets: list[frozenset[int]], element: int, fits: Callable[[frozenset[int]], bool]
) -> list[frozenset[int]] | None:
    """The sets with one more element, others moved between them; None when there is no way."""
    home = {member: index for index, members in enumerate(sets) for member in members}
    before: dict[int, int | None] = {element: None}
    waiting = deque([element])
    while waiting:
        x = waiting.popleft()
        for index, members in enumerate(sets):
            if x in members:
                continue
            if fits(members | {x}):
                return _moved(sets, home, before, x, index, fits)
            for y in sorted(members):
                if y not in before and fits(members - {y} | {x}):
                    before[y] = x
                    waiting.append(y)
    return None


def _moved(
    sets: list[frozenset[int]],
    home: dict[int, int],
    before: dict[int, int | None],
    last: int,
    target: int,
    fits: Callable[[frozenset[int]], bool],
) -> list[frozenset[int]] | None:
    """Each element of the path that ends with `last` takes its successor's place."""
    places = dict(home)
    x: int | None = last
    while x is not None:
        target, places[x] = home.get(x, target), target
        x = before[x]
    moved = [frozenset(e for e, at in places.items() if at == i) for i in range(len(sets))]
    # along a shortest path of a matroid this always holds
    return moved if all(map(fits, moved)) else None


# Groups

# ioctls of a perf event, and their flag for the whole group
ENABLE, DISABLE = 0x2400, 0x2401
WHOLE_GROUP = 1

READ_FORMAT = FORMAT_GROUP | FORMAT_ENABLED | FORMAT_RUNNING
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
        inherited = INHERIT if inherit else 0
        for event in self.events:
            leader = self._leader
            flags = inherited | (DISABLED if leader < 0 else 0)
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
        check_group(unit)

    def together(chosen: Sequence[tuple[Event, ...]]) -> bool:
        flat = [event for unit in chosen for event in unit]
        return len(flat) <= LARGEST and counts(flat)

    groups = [[event for unit in chosen for event in unit] for chosen in partition(units, together)]
    for event in events:
        if event.software:
            check_group([event])
            if all(len(group) >= LARGEST for group in groups):
                groups.append([])
            next(group for group in groups if len(group) < LARGEST).append(event)
    return [tuple(group) for group in groups]


def check_group(events: Sequence[Event]) -> None:
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


# Counters read in user space


@cache
def load_binding() -> ctypes.CDLL:
    """Load the few native lines of the binding, built on first use. Raises DltuneError, with the
    compiler's last lines, when it cannot be built."""
    return bound(
        "perf",
        [Path(__file__).with_name("native.cc")],
        "the reader of counters",
        {"dltune_rdpmc": (c_int, c_void_p, c_void_p), "dltune_loop": (c_int, c_uint64)},
    )


_DONE = 0
# in the event's page
_CAPABILITIES, _USER_RDPMC = 40, 1 << 2


class UserCounter(Opened):
    """One event of the thread that makes it, counting from now on; only that thread may read it.

    The CPU's own instruction reads it in tens of cycles, where a read by the system call takes
    hundreds of nanoseconds. The kernel allows this on x86 for hardware events on a counter
    (`cap_user_rdpmc` in the event's page; /sys/bus/event_source/devices/cpu/rdpmc is 1 or 2), and
    for no software event.

    Raises UsageError when the event cannot be opened, and when the kernel does not let it be read
    in user space: then `Group` counts it.
    """

    def __init__(self, event: Event) -> None:
        self._handle = open_event(event, flags=events.DISABLED)
        # shared and writable, or the kernel would not offer it
        self._map = mmap.mmap(self._handle, mmap.PAGESIZE)
        capabilities = int.from_bytes(self._map[_CAPABILITIES : _CAPABILITIES + 8], sys.byteorder)
        if not capabilities & _USER_RDPMC:
            self.close()
            raise UsageError(
                f"{event.name} cannot be read in user space: the kernel does not allow it",
                remedy=(
                    "read the counter by system call, or as root, for a hardware event on x86: "
                    "echo 1 > /sys/bus/event_source/devices/cpu/rdpmc"
                ),
            )
        self._page = (ctypes.c_char * mmap.PAGESIZE).from_buffer(self._map)
        self._address = ctypes.addressof(self._page)
        self._value = ctypes.c_uint64()
        self._read = load_binding().dltune_rdpmc
        fcntl.ioctl(self._handle, ENABLE, 0)

    def read(self) -> int:
        """Events until now; by the system call while the event has no counter."""
        if self._read(self._address, ctypes.byref(self._value)) == _DONE:
            return self._value.value
        return int.from_bytes(os.read(self._handle, 8), sys.byteorder)

    def close(self) -> None:
        if hasattr(self, "_page"):
            del self._page
        self._map.close()
        os.close(self._handle)


# The self-test

TURNS = 50_000_000
PAGES = 4096
CPU_SECONDS = 0.1
TOLERANCE = 0.01


@dataclass(frozen=True)
class Outcome:
    """`sentence` says what was counted and what was known; `right`: None when it was not tried."""

    name: str
    right: bool | None
    sentence: str


def self_test() -> list[Outcome]:
    """Instructions of a known loop where there is a PMU, page faults of touched pages, task-clock
    between CPU and wall time. Takes under a second."""
    return [
        _told("instructions of a loop", _instructions),
        _told("page faults of touched pages", _page_faults),
        _told("task-clock of CPU time", _task_clock),
    ]


def _told(name: str, test: Callable[[], tuple[bool | None, str]]) -> Outcome:
    try:
        right, sentence = test()
    except DltuneError as error:
        return Outcome(name, None, str(error))
    return Outcome(name, right, sentence)


def _instructions() -> tuple[bool | None, str]:
    if refused := access.available().hardware:
        return None, refused.reason
    loop = load_binding().dltune_loop
    with Group([parse("instructions")]) as group:
        group.enable()
        done = loop(TURNS)
        group.disable()
        scaled = group.read().scaled()
    if done:
        return None, "dltune has no test loop for this architecture"
    if scaled is None:
        return False, "the counter never ran: another tool uses the CPU's counters"
    return _compared(scaled[0], 2 * TURNS, "instructions")


def _page_faults() -> tuple[bool, str]:
    """Private memory of small pages, each touched for the first time."""
    size = PAGES * mmap.PAGESIZE
    with (
        Group([parse("page-faults")]) as group,
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory,
    ):
        with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        first = ctypes.c_char.from_buffer(memory)
        group.enable()
        ctypes.memset(ctypes.addressof(first), 1, size)
        group.disable()
        del first
        counted = group.read().values[0]
    return _compared(counted, PAGES, "page faults")


def _task_clock() -> tuple[bool, str]:
    """CPU time leaves out what a host or an interrupt takes, wall time adds the waiting for a CPU;
    task-clock lies between them."""
    with Group([parse("task-clock")]) as group:
        wall, cpu = time.perf_counter(), time.thread_time()
        group.enable()
        while time.thread_time() - cpu < CPU_SECONDS:
            sum(range(1000))
        group.disable()
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        counted = group.read().values[0] / 1e9
    right = cpu * (1 - TOLERANCE) <= counted <= wall * (1 + TOLERANCE)
    return right, (
        f"counted {counted:.4f} seconds, {'between' if right else 'not between'} {cpu:.4f} of CPU "
        f"and {wall:.4f} of wall time, within {TOLERANCE:.0%}"
    )


def _compared(counted: float, known: int, what: str) -> tuple[bool, str]:
    right = abs(counted - known) <= TOLERANCE * known
    return right, (
        f"counted {counted:,.0f} of {known:,} {what}, "
        f"{'within' if right else 'not within'} {TOLERANCE:.0%}"
    )
