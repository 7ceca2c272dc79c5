"""Steps of the job as they are, and then with denormal numbers taken for zero: what these cost."""

from __future__ import annotations

import time
from itertools import pairwise

from dltune.job import protocol
from dltune.schemas.profile import Ratio
from dltune.stats import unpaired_ratio

# each of the two goes on for so many steps and seconds, or for so many steps once these are over
STEPS, SECONDS = 20, 1.0
LEAST_STEPS, LONG = 5, 10.0
# without an end after so long, the job does something else now
GIVE_UP_SECONDS = 60.0


class Flushing:
    """Executions under the orders `base`, then under `flushed`. They do not take turns: a state
    whose denormal numbers were taken for zero once has none from then on."""

    def __init__(self, base: int, flushed: int) -> None:
        self.base, self.flushed = base, flushed
        self._began = time.monotonic()
        self._turned = False
        self._starts: dict[int, list[int]] = {base: [], flushed: []}

    def add(self, execution: protocol.Execution) -> None:
        """An execution of the step's main graph."""
        if execution.version in self._starts:
            self._starts[execution.version].append(execution.start)

    def turns(self) -> bool:
        """Whether there are enough of the first, and the others are to be ordered: once."""
        turns = not self._turned and self._enough(self.base)
        self._turned = self._turned or turns
        return turns

    @property
    def known(self) -> bool:
        """Whether there are enough of both, or no more are to be waited for."""
        return self._enough(self.flushed) or time.monotonic() - self._began >= GIVE_UP_SECONDS

    def ratio(self) -> Ratio | None:
        """Time of a step with denormal numbers taken for zero over one without; None with too few
        of either."""
        if not self._enough(self.flushed):
            return None
        base, flushed = self._walls(self.base), self._walls(self.flushed)
        found = unpaired_ratio(base, flushed)
        return Ratio(
            pairs=min(len(base), len(flushed)), low=found.low, median=found.median, high=found.high
        )

    def _enough(self, version: int) -> bool:
        starts = self._starts[version]
        steps = len(starts) - 2  # the first warms up
        seconds = (starts[-1] - starts[1]) * 1e-9 if steps > 0 else 0.0
        return (steps >= STEPS and seconds >= SECONDS) or (steps >= LEAST_STEPS and seconds >= LONG)

    def _walls(self, version: int) -> list[float]:
        """Of so many parts of the steps, the mean ns of a step."""
        starts = self._starts[version][1:]
        parts = min(STEPS, len(starts) - 1)
        ends = [round(part * (len(starts) - 1) / parts) for part in range(parts + 1)]
        return [(starts[to] - starts[since]) / (to - since) for since, to in pairwise(ends)]
