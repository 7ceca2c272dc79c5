"""What ops lose to each other when they run side by side: caches, memory and the executor."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict

from dltune.job import messages

# pairs of steps to compare: at most, at least, and the seconds after which the least is enough
PAIRS, LEAST_PAIRS, SECONDS = 8, 3, 20.0
# without so much as one more pair in this time, the job does something else now
GIVE_UP_SECONDS = 60.0
# with less of the op time side by side than this there is nothing to tell from
LEAST_BESIDE = 0.05


class Crowding:
    """Steps with every op on one thread take turns between the orders `alone`, one op after the
    other, and `beside`, as the job's executor starts them; neighbours are compared."""

    def __init__(self, alone: int, beside: int) -> None:
        self._alone = alone
        self._beside = beside
        self._began = time.monotonic()
        self._executions: list[messages.Execution] = []

    def add(self, execution: messages.Execution) -> None:
        """An execution of the step's main graph."""
        if execution.version in (self._alone, self._beside):
            self._executions.append(execution)

    @property
    def known(self) -> bool:
        """Whether there are pairs enough, or no more are to be waited for."""
        pairs, waited = len(self._pairs()), time.monotonic() - self._began
        enough = pairs >= PAIRS or (pairs >= LEAST_PAIRS and waited >= SECONDS)
        return enough or waited >= GIVE_UP_SECONDS

    def factor(self) -> float | None:
        """How many times as long an op takes while others run beside it: the median of the pairs,
        at least 1. None with too few pairs, or where hardly any ops ran side by side."""
        found = [loss for a, b in self._pairs() if (loss := _loss(a, b)) is not None]
        return max(1.0, 1 + statistics.median(found)) if len(found) >= LEAST_PAIRS else None

    def _pairs(self) -> list[tuple[messages.Execution, messages.Execution]]:
        """(alone, beside), neighbours; the first two steps warm up."""
        kept = self._executions[2:]
        return [
            (a, b) if a.version == self._alone else (b, a)
            for a, b in zip(kept[::2], kept[1::2], strict=False)
            if a.version != b.version
        ]


def _loss(alone: messages.Execution, beside: messages.Execution) -> float | None:
    """Of op i, s seconds alone became d, of which a part o was beside another: sum(d - s) over
    sum(s o) is the loss of an op that is never alone."""
    before: dict[int, int] = defaultdict(int)
    for node, _, threads, _, start, end, _ in alone.events:
        if threads == 1:
            before[node] += end - start
    after: dict[int, int] = defaultdict(int)
    shared: dict[int, float] = defaultdict(float)
    together = _overlaps([e for e in beside.events if e[2] >= 0])
    for (node, _, threads, _, start, end, _), overlap in together:
        if threads == 1 and node in before:
            after[node] += end - start
            shared[node] += overlap
    crowded = sum(before[n] * shared[n] / after[n] for n in after if after[n] > 0)
    if crowded < LEAST_BESIDE * sum(before[n] for n in after):
        return None
    return sum(after[n] - before[n] for n in after) / crowded


_Event = tuple[int, int, int, int, int, int, str]


def _overlaps(events: list[_Event]) -> list[tuple[_Event, float]]:
    """Each event, and how many of its nanoseconds another ran too."""
    changes = sorted(
        [(e[4], 1) for e in events] + [(e[5], -1) for e in events], key=lambda change: change[0]
    )
    moments, beside = [0], [0]  # nanoseconds until a moment in which two or more ran
    flying, now, total = 0, 0, 0
    for moment, change in changes:
        if moment > now:
            total += (moment - now) * (flying > 1)
            now = moment
            moments.append(now)
            beside.append(total)
        flying += change
    index = {moment: n for n, moment in enumerate(moments)}
    return [(e, beside[index[max(e[5], 0)]] - beside[index[max(e[4], 0)]]) for e in events]
