"""The background thread's sleeps between cycles: how long it asked for, and when it ran again.

A cycle begins when the thread has slept for the rest of HOROVOD_CYCLE_TIME since the previous cycle
began. It asks for that from the frame of its loop, which distinguishes these sleeps from its other
sleeps and waits, in MPI or gloo. The requested time also shows when the previous cycle began: a
cycle that began without a sleep is seen that way, unless the next did too.

All switches of the thread are recorded in short windows, far apart, and farther the longer it is
watched: recording them slows the thread itself.
"""

from __future__ import annotations

import array
import itertools
import time

from dltune.base.errors import UsageError
from dltune.system.perf.ring import Off, Switches
from dltune.systems.ranks.horovod.distribution import distribution
from dltune.systems.ranks.horovod.watch.horovod_library import Library, within
from dltune.systems.ranks.schemas.horovod import Cycles

# seconds that a window lasts, and from the first one's begin to the second's; from one to the next
# it takes GROWTH times as long as before, LONGEST seconds at most
WINDOW, EVERY, GROWTH, LONGEST = 0.5, 6.0, 1.3, 30.0
# of a cycle: starts of cycles that are nearer than this count as one
_SAME = 0.2


class Sleeps:
    """The sleeps of one background thread. `refused`: why they cannot be seen."""

    def __init__(self, tid: int, library: Library, setting: float) -> None:
        self.refused: str | None = None
        self._loop, self._setting = library.loop, setting
        self._switches: Switches | None = None
        try:
            self._switches = Switches(tid)
        except UsageError as error:
            self.refused = str(error) + (f" ({error.remedy})" if error.remedy else "")
        self._recording = False
        self._times: list[Off] = []
        self._late: list[float] = []
        self._periods: list[float] = []
        self._due = time.monotonic()
        self._every = EVERY

    def look(self) -> bool:
        """Begin and end windows when they are due, and take the records. True while a window is
        open: call it ten times a second then, so that the kernel has room for more."""
        now = time.monotonic()
        if self._switches is None:
            return False
        if self._recording:
            self._drain(self._switches)
            if now >= self._due:
                self._end(self._switches)
                self._due = now + self._every - WINDOW
                self._every = min(GROWTH * self._every, LONGEST)
        elif now >= self._due:
            self._switches.start()
            self._recording = True
            self._due = now + WINDOW
        return self._recording

    def close(self) -> None:
        if self._switches is not None:
            if self._recording:
                self._end(self._switches)
            self._switches.close()
            self._switches = None

    def cycles(self) -> Cycles | None:
        """None when no cycle was seen."""
        if not self._periods:
            return None
        return Cycles(
            setting=self._setting,
            rate=len(self._periods) / sum(self._periods),
            period=distribution(self._periods),
            oversleep=distribution(self._late) if self._late else None,
            empty=None,
        )

    def _end(self, switches: Switches) -> None:
        switches.stop()
        self._drain(switches)
        self._take()
        self._recording = False

    def _drain(self, switches: Switches) -> None:
        lost = switches.lost
        found = switches.drain()
        if switches.lost > lost:  # what came before and after does not follow on each other
            self._take()
        else:
            self._times += found

    def _take(self) -> None:
        starts: list[float] = []
        for off in self._times:
            asked = off.timespec
            if off.preempted or asked is None or not self._from_loop(off):
                continue
            self._late.append(max(0.0, off.back - off.left - asked))
            before = off.left + asked - self._setting
            if starts and before - starts[-1] > _SAME * self._setting:
                starts.append(before)
            starts.append(off.back)
        self._periods += [b - a for a, b in itertools.pairwise(starts)]
        self._times.clear()

    def _from_loop(self, off: Off) -> bool:
        """True if the request is in the loop's frame: its return address comes before it."""
        assert off.argument is not None
        words = array.array("Q", off.stack[: off.argument // 8 * 8])
        return next(within(words, self._loop), None) is not None
