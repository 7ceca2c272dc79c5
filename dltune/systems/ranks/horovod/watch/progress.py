"""Progress of a rank: its background thread's cycles, and all its other activity."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

# seconds without progress after which a rank hangs: Horovod itself warns after 60, and a step, a
# checkpoint or a slow batch that keeps a rank this long shows some use of a core
HUNG_SECONDS = 10.0
# of one core; below it a rank's threads but wake up now and then
IDLE = 0.01


@dataclass(frozen=True)
class _Look:
    at: float
    cycles: float  # CPU seconds and switches of the background thread: it moves when they do
    others: float  # CPU seconds of threads that compute, read, or run Python


class Progress:
    """The activity of a rank over the last `HUNG_SECONDS`."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()

    def note(self, at: float, cycles: float, others: float) -> None:
        self._looks.append(_Look(at, cycles, others))
        while len(self._looks) > 2 and self._looks[1].at <= at - HUNG_SECONDS:
            self._looks.popleft()

    @property
    def known(self) -> bool:
        """True if it was watched for long enough to decide."""
        return bool(self._looks) and self._looks[-1].at - self._looks[0].at >= HUNG_SECONDS

    @property
    def cycling(self) -> bool:
        return self._looks[-1].cycles > self._looks[0].cycles

    @property
    def working(self) -> bool:
        return self._works(IDLE)

    @property
    def at_work_again(self) -> bool:
        """True beyond doubt: a rank that hung can do a little now and then."""
        return self._works(5 * IDLE)

    def _works(self, share: float) -> bool:
        first, last = self._looks[0], self._looks[-1]
        return last.others - first.others > share * (last.at - first.at)
