"""Overlap of transfers with the ops that wait for them: orders (TicTac's and ours), bounds, bins.

`Partition` reduces a worker's step to its receives and the ops that need them. `makespan` and
`Bounds` rate an order of the receives, `tic` and `tac` compute the orders of the paper (TicTac),
and `partitions` chooses tensors that travel together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dltune.simulate.step_graph import (
    Amounts,
    Flags,
    Integers,
    Numbers,
    StepGraph,
    complete,
    reached,
)

NANOSECONDS = 1e9  # in whole ones sums are exact, and equal sums are equal


@dataclass(frozen=True, eq=False)
class Partition:
    """A worker's part of a step, as the order of its receives sees it.

    Two properties of an op matter for that order: how long it takes, and which receives it needs,
    itself or through other ops (the paper's *communication dependency*, section 4.1). Ops that need
    the same receives become ready together, so they are one row here.

    Arrays over the receives, in the graph's order, and over the sets of them that ops need.

    `receives`: their nodes. `transfer`: nanoseconds that each travels alone. `channel`: over which
    it travels, from 0 on; transfers of one channel take turns, those of several go side by side.
    `needs`: (sets, receives), no two rows alike, none empty. `work`: per set, nanoseconds of the
    ops that need just this set. `free`: of the ops that need none.
    """

    receives: Integers
    transfer: Amounts
    channel: Integers
    needs: Flags
    work: Amounts
    free: int = 0

    def __len__(self) -> int:
        return len(self.receives)

    @property
    def channels(self) -> int:
        return int(self.channel.max(initial=-1)) + 1

    def load(self) -> Amounts:
        """Nanoseconds that each channel is busy."""
        return np.bincount(self.channel, self.transfer, self.channels).astype(np.int64)


def partition(
    graph: StepGraph,
    channel: Mapping[int, int],
    seconds: Sequence[float],
) -> Partition:
    """`channel`: by node, of the receives alone. `seconds`: per node, that an op runs or a receive
    travels. Raises ValueError when the graph has a cycle."""
    order = complete(graph)
    receives = sorted(channel)
    times = np.rint(np.asarray(seconds) * NANOSECONDS).astype(np.int64).tolist()
    needs = reached(order, graph.predecessors.lists, receives)
    work: dict[int, int] = {0: 0}
    for node in order:
        if node not in channel:
            work[needs[node]] = work.get(needs[node], 0) + times[node]
    free = work.pop(0)
    bytes_each = (len(receives) + 7) // 8
    packed = b"".join(one.to_bytes(bytes_each, "little") for one in work)
    rows = np.frombuffer(packed, np.uint8).reshape(len(work), bytes_each)
    flags = np.unpackbits(rows, axis=1, count=len(receives), bitorder="little").astype(np.bool_)
    return Partition(
        np.array(receives, np.int32),
        np.array([times[node] for node in receives], np.int64),
        np.array([channel[node] for node in receives], np.int32),
        flags,
        np.array(list(work.values()), np.int64),
        free,
    )


# Efficiency of an order: its makespan, and its place between the bounds (TicTac, section 3.2)


def arrivals(partition: Partition, order: Sequence[int]) -> Amounts:
    """By receive, when it has come, in nanoseconds, where each channel sends in this order."""
    came = np.zeros(len(partition), np.int64)
    sequence = np.asarray(order, np.int64)
    for channel in range(partition.channels):
        own = sequence[partition.channel[sequence] == channel]
        came[own] = np.cumsum(partition.transfer[own])
    return came


def makespan(partition: Partition, order: Sequence[int]) -> int:
    """Return nanoseconds from the first transfer to the end of the last op or the last transfer.

    Computing is one resource, as in the paper: one op after the other, and some op whenever one is
    ready. So a step's time depends only on when each op becomes ready: ops never wait for an op
    that becomes ready later than they do. The step ends when what is ready from some moment on has
    been computed: at the latest of these.
    """
    came, _, ends = schedule(partition, order)
    total = int(partition.work.sum()) + partition.free
    return max(total, int(ends.max(initial=0)), int(came.max(initial=0)))


def schedule(partition: Partition, order: Sequence[int]) -> tuple[Amounts, Amounts, Amounts]:
    """In nanoseconds: by receive when it has come; by set of receives, in the order in which all of
    one have come, when that is, and when all that is ready no sooner could have been computed."""
    came = arrivals(partition, order)
    ready = np.where(partition.needs, came, 0).max(axis=1, initial=0)
    by_time = np.argsort(ready, kind="stable")
    left = np.cumsum(partition.work[by_time][::-1])[::-1]
    return came, ready[by_time], ready[by_time] + left


@dataclass(frozen=True)
class Bounds:
    """In nanoseconds, without regard to what depends on what.

    `upper`: nothing overlaps (equation 1). `lower`: the busiest resource is never idle (equation
    2).
    """

    upper: int
    lower: int

    @classmethod
    def of(cls, partition: Partition) -> Bounds:
        computing = int(partition.work.sum()) + partition.free
        load = partition.load()
        return cls(computing + int(load.sum()), max(computing, int(load.max(initial=0))))

    @classmethod
    def run(cls, ops: Iterable[tuple[int, int]], loads: Collection[int]) -> Bounds:
        """Of a step that was run, by when each op began and ended and how long each channel's
        transfers took. Computing is the time in which at least one op ran, so that these are bounds
        with several ops at a time, too."""
        computing, until = 0, 0
        for start, end in sorted(ops):
            computing += max(0, end - max(start, until))
            until = max(until, end)
        return cls(computing + sum(loads), max(computing, *loads))

    def efficiency(self, makespan: float) -> float:
        """E: 1 for a step as short as can be, 0 for the longest (equation 3). 1 where no order
        changes anything."""
        room = self.upper - self.lower
        return (self.upper - makespan) / room if room else 1.0


# Relation of each receive to computing: P and M+ (TicTac, Algorithm 1)

NEVER = np.iinfo(np.int64).max  # M+ of a receive with which no op needs another


class Properties(NamedTuple):
    """Over the outstanding receives. `direct` (P): nanoseconds of the ops that wait for this one
    alone. `impending` (M+): the least transfer time after which an op can run that needs it and
    another; NEVER where there is none."""

    direct: Amounts
    impending: Amounts


class Outstanding:
    """The receives of a partition that have not been sent, and the sets of them that ops wait for.

    A set's transfer time (M) is that of its busiest channel: the paper has one, and transfers over
    several go side by side.
    """

    def __init__(self, partition: Partition, transfer: Amounts | None = None) -> None:
        """`transfer`: other times than the partition's own."""
        self.receives: Integers = np.arange(len(partition), dtype=np.int32)
        self.transfer: Amounts = (partition.transfer if transfer is None else transfer).copy()
        self._channel: Integers = partition.channel
        self._flags: Flags = partition.needs
        self._needs: Numbers = partition.needs.astype(np.float64)  # products of these are exact
        self._work: Numbers = partition.work.astype(np.float64)
        # a column per channel, and one that counts
        self._weights: Numbers = np.zeros((len(partition), max(1, partition.channels) + 1))
        self._weights[self.receives, partition.channel] = self.transfer
        self._weights[:, -1] = 1.0

    def properties(self) -> Properties:
        sums = self._needs @ self._weights
        count, time = sums[:, -1], sums[:, :-1].max(axis=1, initial=0.0)
        alone = count == 1.0
        direct = self._work[alone] @ self._needs[alone]
        several = np.flatnonzero(count > 1.0)
        soonest = several[np.argsort(time[several], kind="stable")]
        impending = np.full(len(self.receives), NEVER)
        if len(soonest):
            held = self._flags[soonest]
            first = held.argmax(axis=0)
            there = held[first, np.arange(held.shape[1])]
            impending[there] = time[soonest[first[there]]].astype(np.int64)
        return Properties(direct.astype(np.int64), impending)

    def sent(self, place: int, part: int | None = None) -> None:
        """The receive at this place of `receives` is outstanding no more, or `part` nanoseconds
        less of it."""
        if part is not None:
            self.transfer[place] -= part
            self._weights[place, self._channel[place]] -= part
            return
        kept = np.arange(len(self.receives)) != place
        self.receives, self._weights = self.receives[kept], self._weights[kept]
        self.transfer, self._channel = self.transfer[kept], self._channel[kept]
        self._flags = self._flags[:, kept]
        waiting = self._flags.any(axis=1)
        self._flags, self._work = self._flags[waiting], self._work[waiting]
        self._needs = self._flags.astype(np.float64)


# TIC and TAC: the paper's orders of a worker's receives (TicTac, section 4)


def tic(partition: Partition) -> list[int]:
    """Timing-independent (Algorithm 2): places of the receives, by how many must have come until
    one lets an op run together with others (M+ with a time of one for each).

    Of equal ones, in the graph's order; those that no op needs together with others come last.
    """
    ones = np.ones(len(partition), np.int64)
    priority = Outstanding(partition, ones).properties().impending
    return [int(place) for place in np.argsort(priority, kind="stable")]


def tac(partition: Partition) -> list[int]:
    """Timing-aware (Algorithm 3): places of the receives, each chosen as the best of those that
    are left when all before it have come."""
    outstanding = Outstanding(partition)
    order: list[int] = []
    while len(outstanding.receives):
        best = foremost(outstanding, range(len(outstanding.receives)))
        order.append(int(outstanding.receives[best]))
        outstanding.sent(best)
    return order


def foremost(outstanding: Outstanding, places: Iterable[int]) -> int:
    """Which of these places of `outstanding.receives` TAC sends first.

    A comes before B when min(P_B, M_A) < min(P_A, M_B), as equation 6 derives it. The listing of
    Algorithm 3 compares these the other way round, which would send first what overlaps least. Of
    equal ones the one with the lower M+ comes first. This comparison is not transitive, as the
    paper has it, so "the minimum" depends on the search: it is a scan in the graph's order.
    """
    direct, impending = (values.tolist() for values in outstanding.properties())
    transfer = outstanding.transfer.tolist()
    best, *others = places
    for other in others:
        ours = min(direct[other], transfer[best])
        theirs = min(direct[best], transfer[other])
        if ours > theirs or (ours == theirs and impending[other] < impending[best]):
            best = other
    return best


# Bins: tensors that travel together

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
    """Return for each possible number of bins, fewest first, the bins under which all is done
    earliest: the transfers, and the computing that waits for them.

    As in section 6.3.4 of Pumma's thesis (TOPO), only concurrent tensors share a bin, and a bin
    holds at most HOROVOD_FUSION_THRESHOLD bytes. The thesis fills bins up. Here, for each number of
    bins, they are cut where the last transfer ends earliest, so that bins travel while later
    gradients are still computed. If nothing is known of when gradients are there, the fewest bins
    are the thesis's own. Where it is known what waits for each, bins are cut where all of that has
    been computed earliest.

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
