"""The background thread's sleeps between cycles: how long it asked for, and when it ran again.

A cycle begins when the thread has slept for what is left of HOROVOD_CYCLE_TIME since the cycle
before began. It asks for that from the frame of its loop, so that its other sleeps and waits, in
MPI or gloo, are told apart. What it asks for also tells when the cycle before began: one that began
without a sleep is seen that way, unless the next did too.

All switches of the thread are recorded in short windows, far apart.
"""

from __future__ import annotations

import array
import itertools
import time

from dltune.documents.horovod import Cycles
from dltune.errors import UsageError
from dltune.horovod.timeline import distribution
from dltune.horovod.watch.library import Library
from dltune.machine.perf.switches import Off, Switches

# seconds that a window lasts, and from one's begin to the next's
WINDOW, EVERY = 0.5, 5.0
# of a cycle: starts of cycles that lie nearer than this are one
_SAME = 0.2


class Sleeps:
    """Of one background thread. `refused`: why they cannot be seen."""

    def __init__(self, tid: int, library: Library, setting: float) -> None:
        self.refused: str | None = None
        self._tid, self._library, self._setting = tid, library, setting
        self._open: Switches | None = None
        self._seconds = 0.0
        self._late: list[float] = []
        self._periods: list[float] = []
        self._began = 0.0
        self.due = time.monotonic()

    def look(self) -> None:
        """Begins a window, or ends it; call when it is due."""
        now = time.monotonic()
        if self._open is None:
            self._begin(now)
            self.due = now + WINDOW
        else:
            self._end(now)
            self.due = now + EVERY - WINDOW

    def close(self) -> None:
        if self._open is not None:
            self._end(time.monotonic())

    def cycles(self) -> Cycles | None:
        """None when no cycle was seen."""
        if not self._periods:
            return None
        return Cycles(
            setting=self._setting,
            rate=len(self._periods) / self._seconds,
            period=distribution(self._periods),
            oversleep=distribution(self._late) if self._late else None,
            empty=None,
        )

    def _begin(self, now: float) -> None:
        try:
            self._open = Switches(self._tid)
        except UsageError as error:
            self.refused = str(error) + (f" ({error.remedy})" if error.remedy else "")
            return
        self._began = now
        self._open.start()

    def _end(self, now: float) -> None:
        assert self._open is not None
        with self._open as switches:
            switches.stop()
            self._take(switches.drain())
        self._seconds += now - self._began
        self._open = None

    def _take(self, times: list[Off]) -> None:
        starts: list[float] = []
        for off in times:
            asked = off.timespec
            if off.preempted or asked is None or not self._from_loop(off):
                continue
            self._late.append(max(0.0, off.back - off.left - asked))
            before = off.left + asked - self._setting
            if starts and before - starts[-1] > _SAME * self._setting:
                starts.append(before)
            starts.append(off.back)
        self._periods += [b - a for a, b in itertools.pairwise(starts)]

    def _from_loop(self, off: Off) -> bool:
        """The request lies in the loop's own frame: its return address comes before it."""
        assert off.argument is not None
        words = array.array("Q", off.stack[: off.argument // 8 * 8])
        return any(word in part for word in words for part in self._library.loop)
