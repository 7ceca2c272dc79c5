"""TOPO, second half: which tensors travel together.

Section 6.3.4 of the thesis: only concurrent tensors share a bin, and a bin holds at most
HOROVOD_FUSION_THRESHOLD bytes. The thesis fills bins up; here, for each number of bins, they are
cut where the last transfer ends earliest, so that bins travel while later gradients are still
computed. With nothing known of when gradients are there, the fewest bins are the thesis's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.planners.allreduce.topology import Topology

# so many bins are tried at most, unless the threshold asks for more
MOST = 16


@dataclass(frozen=True)
class Cost:
    """Seconds from a bin's last tensor to the bin on all ranks: `latency`, and `per_byte`."""

    latency: float
    per_byte: float


def partitions(
    topology: Topology,
    sizes: Sequence[int],
    ready: Sequence[float],
    cost: Cost,
    threshold: int,
    most: int = MOST,
) -> list[tuple[tuple[int, ...], ...]]:
    """For each possible number of bins, fewest first, the bins whose last transfer ends earliest.

    A bin is a run of consecutive IDs; `sizes` in bytes and `ready` in seconds are by ID. Bins
    travel one after the other, each when its last tensor is there. A tensor above the threshold
    travels alone. Among equal partitions early bins are the fuller ones.
    """
    n = len(topology.order)
    if n == 0:
        return []
    first = _first(topology, sizes, threshold)
    fewest = _fewest(first)
    total = [0, *itertools.accumulate(sizes)]
    infinite = float("inf")
    ends = [0.0] + [infinite] * n  # by number of IDs placed, in as many bins as there are rounds
    cuts: list[list[int]] = []
    found = []
    for bins in range(1, max(most, fewest) + 1):
        following, cut = [infinite] * (n + 1), [0] * (n + 1)
        for last in range(bins, n + 1):
            latest = 0.0
            for begin in range(last - 1, first[last - 1] - 1, -1):
                latest = max(latest, ready[begin])
                if ends[begin] == infinite:
                    continue
                end = max(ends[begin], latest) + (
                    cost.latency + cost.per_byte * (total[last] - total[begin])
                )
                if end < following[last]:
                    following[last], cut[last] = end, begin
        ends = following
        cuts.append(cut)
        if ends[n] < infinite:
            found.append(_read(cuts, n))
    return found


def _first(topology: Topology, sizes: Sequence[int], threshold: int) -> list[int]:
    """For each ID the smallest that could be the first of a bin of which it is the last."""
    first, begin, held = [], 0, 0
    for last, size in enumerate(sizes):
        held += size
        needed = topology.before[last].bit_length()  # one after the last ID that it depends on
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


def _read(cuts: Sequence[Sequence[int]], n: int) -> tuple[tuple[int, ...], ...]:
    bins, last = [], n
    for cut in reversed(cuts):
        bins.append(tuple(range(cut[last], last)))
        last = cut[last]
    return tuple(reversed(bins))
