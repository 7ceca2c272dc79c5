"""TAC: the gradient that travels next (TicTac, section 4.3), and the gradients that make way for
others.

A worker there receives parameters that are all ready when its step begins. Here a transfer is the
allreduce of a gradient. Its variable's update and all other readers of the sum wait for it, and a
gradient can travel only once the backward pass has it. So the comparison covers the gradients that
are ready when the link is free. A gradient that is larger than a bin can be cut, to let others go
first: all its pieces have its priority (P3, MLSys 2019; ByteScheduler, SOSP 2019).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from dltune.simulate.overlap import NANOSECONDS, Cost, Outstanding, Partition, foremost, partitions
from dltune.systems.ranks.allreduce.calls import Call, Gradient
from dltune.systems.ranks.allreduce.section import Bin
from dltune.systems.ranks.allreduce.topology import Topology

# Pieces are tried of the size of a bin where there are so many...
BINS = (4, 8, 16)
# ...and of a multiple of so many elements: TensorFlow takes such a slice without copying it.
ALIGNED = 64


def ways(
    call: Call,
    topology: Topology,
    ready: Sequence[float],
    waiting: Partition,
    cost: Cost,
    threshold: int,
) -> Iterator[tuple[Bin, ...]]:
    """Bins in TAC's order, of positions in the call's list: with all gradients whole, then with
    large ones in pieces, where these make way.

    `ready`: seconds until each is there. `waiting`: what waits for the gradients' nodes.
    """
    places = [call.places[node] for node in topology.order]
    gradients = [call.gradients[place] for place in places]
    moments = [round(ready[place] * NANOSECONDS) for place in places]
    # of its bytes alone: the fixed cost of a transfer is shared by the gradients of a bin
    travels = [round(cost.per_byte * gradient.bytes * NANOSECONDS) for gradient in gradients]
    ours = _by_id(waiting, topology, travels)
    for limit in (math.inf, *(min(threshold, call.bytes / bins) for bins in BINS)):
        units = [_unit(gradient, limit) for gradient in gradients]
        pieces = [-(-_elements(g) // unit) for g, unit in zip(gradients, units, strict=True)]
        went = tac(ours, topology, moments, pieces)
        times = collections.Counter(one for one, _ in went)
        if limit < math.inf and max(times.values()) == 1:
            continue  # as with whole ones
        sent = collections.Counter[int]()
        parts = []
        for one, count in went:
            elements, size = _elements(gradients[one]), gradients[one].bytes
            piece = None
            if times[one] > 1:
                piece = sent[one], min(elements, sent[one] + count * units[one])
                size = (piece[1] - piece[0]) * (size // elements)
                sent[one] = piece[1]
            parts.append(Bin((places[one],), size, piece))
        order = [one for one, _ in went]
        for runs in partitions(
            topology.reordered(order).before,
            [part.bytes for part in parts],
            [ready[places[one]] for one in order],
            cost,
            threshold,
            waits=[nanoseconds / NANOSECONDS for nanoseconds in waits(ours, order)],
            alone={k for k, part in enumerate(parts) if part.elements},
        ):
            yield tuple(
                Bin(
                    tuple(places[order[k]] for k in run),
                    sum(parts[k].bytes for k in run),
                    parts[run[0]].elements,
                )
                for run in runs
            )


def tac(
    partition: Partition, topology: Topology, ready: Sequence[int], pieces: Sequence[int]
) -> list[tuple[int, int]]:
    """Return IDs in the order in which they travel over the one link, each with how many of its
    pieces go then: an ID that makes way for another comes again.

    `partition`: its receives are the transfers by ID. `ready`: nanoseconds until each is there.
    `pieces`: the number of pieces into which each can be cut.
    """
    outstanding = Outstanding(partition)
    left = list(pieces)
    order: list[int] = []
    now = ended = 0
    while len(outstanding.receives):
        ids = outstanding.receives.tolist()
        free = [place for place, one in enumerate(ids) if not topology.before[one] & ~ended]
        now = max(now, min(ready[ids[place]] for place in free))
        best = foremost(outstanding, (place for place in free if ready[ids[place]] <= now))
        one = ids[best]
        order.append(one)
        part = int(outstanding.transfer[best]) // left[one]
        now += part
        left[one] -= 1
        if left[one]:
            outstanding.sent(best, part)
        else:
            outstanding.sent(best)
            ended |= 1 << one
    return [(one, len(list(times))) for one, times in itertools.groupby(order)]


def waits(partition: Partition, order: Sequence[int]) -> list[int]:
    """By place in `order`, the nanoseconds of the ops for which this is the last to come."""
    last = np.zeros(len(partition), np.int64)
    last[list(order)] = range(len(order))  # of one that is there several times, the last
    found = np.zeros(len(order), np.int64)
    np.add.at(found, np.where(partition.needs, last, -1).max(axis=1), partition.work)
    return [int(nanoseconds) for nanoseconds in found]


def _by_id(partition: Partition, topology: Topology, transfer: Sequence[int]) -> Partition:
    """With a topology's IDs for receives, and these nanoseconds for their transfers."""
    place = {node: k for k, node in enumerate(partition.receives.tolist())}
    columns = [place[node] for node in topology.order]
    return dataclasses.replace(
        partition,
        receives=partition.receives[columns],
        transfer=np.array(transfer, np.int64),
        needs=partition.needs[:, columns],
    )


def _elements(gradient: Gradient) -> int:
    return max(1, math.prod(gradient.shape))


def _unit(gradient: Gradient, limit: float) -> int:
    """Elements of its pieces of about `limit` bytes."""
    elements = _elements(gradient)
    if gradient.bytes <= limit:
        return elements
    return ALIGNED * math.ceil(limit * elements / gradient.bytes / ALIGNED)
