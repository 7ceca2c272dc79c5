"""Looking so seldom that the job does not feel it: each kind of look waits in proportion to what
its last ones cost."""

from __future__ import annotations

import random
import time

# seconds: the first wait, and what each is of the one before until the least is reached
FIRST, GROWTH = 0.1, 1.6
LONGEST = 1.5  # seconds that one dear look may keep the next ones waiting


class Pace:
    """When the next look of one kind is due.

    Waits at least `least` seconds, and so long that looking takes at most `share` of the time of
    one CPU. The first waits are shorter, from `FIRST` on: much happens while a job starts. Waits
    vary by a third, so that looks keep no time with what they look at.
    """

    def __init__(self, least: float, share: float) -> None:
        self._least = least
        self._now = min(FIRST, least)
        self._share = share
        self._cost = 0.0
        self._began = 0.0
        self.due = time.monotonic()
        self.looks = 0

    def begin(self) -> None:
        self._began = time.thread_time()

    def end(self) -> None:
        cost = time.thread_time() - self._began
        # rises at once, falls slowly: one cheap look does not make up for a dear one
        self._cost = max(cost, 0.8 * self._cost + 0.2 * cost)
        self.looks += 1
        dear = self._cost / self._share if self._now >= self._least else 0.0
        wait = max(self._now, min(dear, LONGEST))
        self._now = min(self._least, self._now * GROWTH)
        self.due = time.monotonic() + wait * random.uniform(0.83, 1.17)

    def soon(self) -> None:
        """Something new is there: the waits begin small again."""
        self._now = min(FIRST, self._least)
        self.due = min(self.due, time.monotonic() + self._now)
