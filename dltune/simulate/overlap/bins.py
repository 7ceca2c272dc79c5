"""Which tensors travel together.

Section 6.3.4 of Pumma's thesis (TOPO): only concurrent tensors share a bin, and a bin holds at most
HOROVOD_FUSION_THRESHOLD bytes. The thesis fills bins up; here, for each number of bins, they are
cut where the last transfer ends earliest, so that bins travel while later gradients are still
computed. With nothing known of when gradients are there, the fewest bins are the thesis's own.
Where it is known what waits for each, they are cut where all of that has been computed earliest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

# so many bins are tried at most, unless the threshold asks for more
MOST = 16

# A way to place the first IDs: when its last transfer has ended; when all that waits has been
# computed, as far as its bins say; the last bin's first ID, negative, so that of equal ways that
# with the fuller early bins is the least; and which of the ways up to there came before.
_Way = tuple[float, float, int, int]


Runs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Cost:
    """Seconds from a bin's last tensor to the bin on all ranks: `latency`, and `per_byte`."""

    latency: float
    per_byte: float


def partitions(
    before: Sequence[int],
    sizes: Sequence[int],
    ready: Sequence[float],
    cost: Cost,
    threshold: int,
    most: int = MOST,
    waits: Sequence[float] | None = None,
    alone: Collection[int] = (),
) -> list[Runs]:
    """For each possible number of bins, fewest first, the bins under which all is done earliest:
    the transfers, and what waits for them.

    A bin is a run of consecutive IDs; `sizes` in bytes, `ready` in seconds and `before`, a bit mask
    of the IDs whose transfers must have ended before its own can begin, are by ID. Bins
    travel one after the other, each when its last tensor is there. A tensor above the threshold
    travels alone, as do those of `alone`. `waits`: by ID, seconds of computing that can begin when
    it and all before it have come, and the last tensor is there [none]. Among equal partitions
    early bins are the fuller ones.
    """
    n = len(before)
    if n == 0:
        return []
    first = _first(before, sizes, threshold, alone)
    fewest = _fewest(first)
    total = [0, *itertools.accumulate(sizes)]
    rest = list(itertools.accumulate(reversed(waits or [0.0] * n)))[::-1]
    # by number of IDs placed, in as many bins as there are rounds
    rounds: list[list[list[_Way]]] = [[[(0.0, max(ready) + rest[0], 0, 0)]] + [[]] * n]
    found = []
    for bins in range(1, max(most, fewest) + 1):
        placed = rounds[-1]
        following: list[list[_Way]] = [[] for _ in range(n + 1)]
        for last in range(bins, n + 1):
            latest, ways = 0.0, list[_Way]()
            soonest = at_end = math.inf  # of the way so far whose last transfer ends first
            for begin in range(last - 1, first[last - 1] - 1, -1):
                latest = max(latest, ready[begin])
                seconds = cost.latency + cost.per_byte * (total[last] - total[begin])
                for which, (came, done, _, _) in enumerate(placed[begin]):
                    end = (came if came > latest else latest) + seconds
                    if end + rest[begin] > done:
                        done = end + rest[begin]
                    if end < soonest:
                        soonest, at_end = end, done
                    elif done >= at_end:
                        continue
                    ways.append((end, done, -begin, which))
            following[last] = _undominated(ways)
        rounds.append(following)
        if following[n]:
            found.append(_read(rounds, n))
    return found


def ended(runs: Runs, sizes: Sequence[int], ready: Sequence[float], cost: Cost) -> float:
    """Seconds until the last of these bins has travelled; as in `partitions`."""
    now = 0.0
    for run in runs:
        now = max(now, *(ready[k] for k in run)) + cost.latency
        now += cost.per_byte * sum(sizes[k] for k in run)
    return now


def _undominated(ways: list[_Way]) -> list[_Way]:
    """Those that no other is better than, or as good as, in both times."""
    kept: list[_Way] = []
    for way in sorted(ways):
        if not kept or way[1] < kept[-1][1]:
            kept.append(way)
    return kept


def _first(
    before: Sequence[int], sizes: Sequence[int], threshold: int, alone: Collection[int]
) -> list[int]:
    """For each ID the smallest that could be the first of a bin of which it is the last."""
    first, begin, held = [], 0, 0
    for last, size in enumerate(sizes):
        held += size
        needed = before[last].bit_length()  # one after the last ID that it depends on
        if last in alone or last - 1 in alone:
            needed = last
        while begin < needed or (held > threshold and begin < last):
            held -= sizes[begin]
            begin += 1
        first.append(begin)
    return first


def _fewest(first: Sequence[int]) -> int:
    """How many bins it takes when each is filled up."""
    bins, begin = 1, 0
    for last, earliest in enumerate(first):
        if earliest > begin:
            bins, begin = bins + 1, last
    return bins


def _read(rounds: Sequence[Sequence[Sequence[_Way]]], n: int) -> Runs:
    bins, last = [], n
    which = len(rounds[-1][n]) - 1  # where all is placed, what is done first
    for ways in reversed(rounds[1:]):
        _, _, begin, which = ways[last][which]
        bins.append(tuple(range(-begin, last)))
        last = -begin
    return tuple(reversed(bins))
