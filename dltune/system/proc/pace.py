"""Looking so seldom that the job does not feel it: each kind of look waits in proportion to what
its last ones cost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

# seconds: the first wait, and what each is of the one before until the least is reached
FIRST, GROWTH = 0.1, 1.6
LONGEST = 1.5  # seconds that one dear look may keep the next ones waiting
TELL_SECONDS = 1.0
SHORTEST = 0.001  # seconds of a rest between looks


class Pace:
    """One kind of look, and when the next is due, in seconds of time.monotonic().

    Waits at least `least` seconds, and so long that looking takes at most `share` of the time of
    one CPU. The first waits are shorter, from `FIRST` on: much happens while a job starts. Waits
    vary by a third, so that looks keep no time with what they look at.

    `due` may know better: it is given the time that this comes to, and returns another.
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
        """A look, now."""
        began = time.thread_time()
        self._look()
        cost = time.thread_time() - began
        # rises at once, falls slowly: one cheap look does not make up for a dear one
        self._cost = max(cost, 0.8 * self._cost + 0.2 * cost)
        self.looks += 1
        dear = self._cost / self._share if self._now >= self._least else 0.0
        wait = max(self._now, min(dear, LONGEST))
        self._now = min(self._least, self._now * GROWTH)
        self.due = self._adjusted(time.monotonic() + wait * random.uniform(0.83, 1.17))

    def soon(self) -> None:
        """Something new is there: the waits begin small again."""
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
    """Take each look when it is due, until `over`, which is asked after each round of looks, says
    so, or it is `until` (of time.monotonic()). `tell` is called about once a second, `wait` to let
    time pass: at most `longest` seconds, within which `over` is heard."""
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
