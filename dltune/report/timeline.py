"""A step on a time axis: the ops with their times, rows and concurrency; the receives from other
tasks, with their times.

Times are whole nanoseconds since the first op of the execution. Slices of one row never overlap and
none is empty: an op that took less than a nanosecond is left out.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dltune.schemas.profile import Step
from dltune.simulate import engine

NANOSECONDS = 1e9


@dataclass(frozen=True)
class Slice:
    """A node of the step from `start` to `end`. `cores` is empty where they are not known."""

    node: int
    start: int
    end: int
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Row:
    """The slices in one place, in order of time."""

    label: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Timeline:
    """`slices`: each op once, by start. A row is a core where the cores are known (an op on
    several cores is in the row of each); else it holds ops that one thread could have run.

    `links`: a row for each link, of the receives from another task, which are not in `slices`. All
    are requested when a step begins and come one after the other. So a slice is not the wait of the
    receive but its longest possible travel time: since the previous receive had come. A receive
    that is reported without bytes has no slice.
    """

    title: str
    slices: tuple[Slice, ...]
    rows: tuple[Row, ...]
    links: tuple[Row, ...] = ()

    @property
    def whole(self) -> tuple[Slice, ...]:
        """Receives and ops."""
        return (*(piece for link in self.links for piece in link.slices), *self.slices)

    @property
    def end(self) -> int:
        return max((piece.end for piece in self.whole), default=0)


def measured(step: Step) -> Timeline:
    """The execution that the profile kept, without slices when it has none.

    The profile does not say which thread ran an op, so rows are lanes.
    """
    found = [
        Slice(index, round(node.start * NANOSECONDS), round(node.end * NANOSECONDS))
        for index, node in enumerate(step.nodes)
        if node.start is not None and node.end is not None
    ]
    slices, links = _apart(found, step)
    return Timeline("measured", slices, _lanes("lane", slices), links)


def simulated(title: str, found: engine.Timeline, step: Step) -> Timeline:
    """A simulated execution of the step; on cores when it was simulated `with_cores`."""
    pieces = [
        Slice(
            node,
            round(start * NANOSECONDS),
            round(end * NANOSECONDS),
            found.cores[node] if found.cores else (),
        )
        for node, (start, end) in enumerate(zip(found.start, found.end, strict=True))
    ]
    slices, links = _apart(pieces, step)
    known = any(piece.cores for piece in slices)
    return Timeline(title, slices, _cores(slices) if known else _lanes("slot", slices), links)


def corunning(slices: Sequence[Slice]) -> list[tuple[int, int]]:
    """(time, ops in flight from then on), at each moment at which an op starts or ends (Fig. 4),
    counted when all that happens at that moment has happened."""
    return levels((s.start, s.end, 1) for s in slices)


def levels(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """(time, sum of the weights of the (start, end, weight) that are open from then on)."""
    change: defaultdict[int, int] = defaultdict(int)
    for start, end, weight in spans:
        change[start] += weight
        change[end] -= weight
    times = sorted(change)
    return list(zip(times, itertools.accumulate(change[time] for time in times), strict=True))


def mean_corunning(slices: Sequence[Slice]) -> float:
    """The mean of `corunning` over its events, as a simulated `Timeline.corunning` is: each start
    and each end is an event, also where several fall on one moment."""
    counts = dict(corunning(slices))
    events = [moment for piece in slices for moment in (piece.start, piece.end)]
    return sum(counts[moment] for moment in events) / len(events) if events else 0.0


def _apart(pieces: Iterable[Slice], step: Step) -> tuple[tuple[Slice, ...], tuple[Row, ...]]:
    """Return the ops, and a row of the receives over each link."""
    ops: list[Slice] = []
    came: defaultdict[str, list[Slice]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (piece.end, piece.start)):
        node = step.nodes[piece.node]
        if node.received is None:
            ops.append(piece)
        elif not node.outputs or any(tensor.bytes for tensor in node.outputs):
            there = came[node.received[0]]
            before = there[-1].end if there else 0
            there.append(replace(piece, start=max(piece.start, before)))
    links = (Row(f"from {_short(sender)}", _ordered(came[sender])) for sender in sorted(came))
    return _ordered(ops), tuple(links)


def _short(task: str) -> str:
    """Return the short form of a task, such as "ps:0"."""
    return task.removeprefix("/job:").replace("/task:", ":")


def _ordered(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    kept = (piece for piece in slices if piece.end > piece.start)
    return tuple(sorted(kept, key=lambda piece: (piece.start, piece.end, piece.node)))


def _lanes(label: str, slices: Sequence[Slice]) -> tuple[Row, ...]:
    """The fewest rows without overlap: each slice goes to the first row that is free."""
    rows: list[list[Slice]] = []
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for piece in slices:
        while busy and busy[0][0] <= piece.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row = len(rows)
            rows.append([])
        rows[row].append(piece)
        heapq.heappush(busy, (piece.end, row))
    return tuple(Row(f"{label} {n + 1}", tuple(row)) for n, row in enumerate(rows))


def _cores(slices: Sequence[Slice]) -> tuple[Row, ...]:
    """A row for each core, and further ones where a core ran several ops at once. Ops that held no
    core (they waited, or were too small to be given one) come last."""
    held: defaultdict[int, list[Slice]] = defaultdict(list)
    for piece in slices:
        for core in piece.cores:
            held[core].append(piece)
    rows = [
        Row(f"core {core}" + (f" ({n + 1})" if n else ""), row.slices)
        for core in sorted(held)
        for n, row in enumerate(_lanes("", held[core]))
    ]
    return (*rows, *_lanes("no core", [piece for piece in slices if not piece.cores]))
