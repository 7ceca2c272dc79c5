"""Steps of the job that take turns between two sets of orders, and their times compared."""

from __future__ import annotations

import time
from itertools import pairwise

from dltune.job import protocol
from dltune.schemas.profile import Ratio
from dltune.stats import paired_ratio

# pairs of steps to compare: at most, at least, and the seconds after which the least is enough
PAIRS, LEAST_PAIRS, SECONDS = 10, 3, 20.0
# without so much as one more pair in this time, the job does something else now
GIVE_UP_SECONDS = 60.0


class Turns:
    """Steps take turns between the orders `base` and `other`, and are compared in pairs of
    neighbours, so that the machine's drift hits both."""

    def __init__(self, base: int, other: int) -> None:
        self._versions = {base: 0, other: 1}
        self._began = time.monotonic()
        self._executions: list[tuple[int, int, int]] = []  # number, version, start

    def add(self, execution: protocol.Execution) -> None:
        """An execution of the step's main graph."""
        if execution.version in self._versions:
            kind = self._versions[execution.version]
            self._executions.append((execution.number, kind, execution.start))

    @property
    def known(self) -> bool:
        """Whether there are pairs enough, or no more are to be waited for."""
        pairs, waited = len(self._pairs()), time.monotonic() - self._began
        enough = pairs >= PAIRS or (pairs >= LEAST_PAIRS and waited >= SECONDS)
        return enough or waited >= GIVE_UP_SECONDS

    def ratio(self) -> Ratio | None:
        """Time of a step under `other` over one under `base`; None with too few pairs."""
        pairs = self._pairs()
        if len(pairs) < LEAST_PAIRS:
            return None
        found = paired_ratio(pairs)
        return Ratio(pairs=found.rounds, low=found.low, median=found.median, high=found.high)

    def _pairs(self) -> list[tuple[float, float]]:
        """(other, base) walls of neighbours; the first two steps warm up."""
        walls = [
            (kind, following - start)
            for (number, kind, start), (next_number, _, following) in pairwise(self._executions[2:])
            if next_number == number + 1
        ]
        pairs: list[tuple[float, float]] = []
        for (kind, wall), (other, following) in zip(walls[::2], walls[1::2], strict=False):
            if kind != other and wall > 0 and following > 0:
                pairs.append((wall, following) if kind else (following, wall))
        return pairs
