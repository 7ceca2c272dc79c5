"""Sampling seldom enough not to slow down the job: each kind of sample waits in proportion to the
cost of its last samples."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

# the first wait in seconds, and the ratio of each wait to the previous one until `least` is reached
FIRST, GROWTH = 0.1, 1.6
LONGEST = 1.5  # most seconds by which an expensive sample delays the next samples
TELL_SECONDS = 1.0
SHORTEST = 0.001  # seconds of a rest between samples


class Pace:
    """A kind of sample, and when the next sample is due, in seconds of time.monotonic().

    Waits at least `least` seconds, and long enough that sampling takes at most `share` of the time
    of one CPU. The first waits are shorter, from `FIRST` on: much happens while a job starts. Waits
    vary by a third, so that samples do not fall into step with the observed process.

    `due` can adjust this: it receives the computed time, and returns another.
    """

    def __init__(
        self,
        least: float,
        share: float,
        look: Callable[[], object],
        due: Callable[[float], float] = lambda paced: paced,
    ) -> None:
        self._least = least
        self._now = min(FIRST, least)
        self._share = share
        self._look = look
        self._adjusted = due
        self._cost = 0.0
        self.due = time.monotonic()
        self.looks = 0

    def take(self) -> None:
        """Take a sample now."""
        began = time.thread_time()
        self._look()
        cost = time.thread_time() - began
        # rises at once, falls slowly: one cheap sample does not make up for an expensive sample
        self._cost = max(cost, 0.8 * self._cost + 0.2 * cost)
        self.looks += 1
        dear = self._cost / self._share if self._now >= self._least else 0.0
        wait = max(self._now, min(dear, LONGEST))
        self._now = min(self._least, self._now * GROWTH)
        self.due = self._adjusted(time.monotonic() + wait * random.uniform(0.83, 1.17))

    def soon(self) -> None:
        """Restart with short waits, because there is something new."""
        self._now = min(FIRST, self._least)
        self.due = min(self.due, time.monotonic() + self._now)


def keep_looking(
    kinds: Sequence[Pace],
    longest: float,
    until: float | None,
    over: Callable[[], bool],
    tell: Callable[[], None],
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Take each sample when it is due, until `over`, which is called after each round of samples,
    returns True, or until `until` (of time.monotonic()). `tell` is called about once a second,
    `wait` to let time pass: at most `longest` seconds, so that `over` is called that often."""
    told = time.monotonic()
    while True:
        now = time.monotonic()
        for kind in kinds:
            if kind.due <= now:
                kind.take()
        done = over() or (until is not None and now >= until)
        if now - told >= TELL_SECONDS:
            told = now
            tell()
        if done:
            return
        due = min(kind.due for kind in kinds)
        wait(min(max(due - time.monotonic(), SHORTEST), longest))
