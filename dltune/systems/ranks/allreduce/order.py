"""The order and number of bins under which the predicted step is shortest.

The order is that of the graph (TOPO, `traverse`) or the priority of gradients (TAC, `tac_bins`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.base.errors import UsageError
from dltune.base.formatting import counted, size
from dltune.simulate.overlap import NANOSECONDS, Cost, Outstanding, Partition, foremost, partitions
from dltune.systems.ranks.allreduce.measurements import Call, Gradient
from dltune.systems.ranks.allreduce.model import Model
from dltune.systems.ranks.allreduce.section import Bin, Order, pieces


@dataclass(frozen=True)
class Topology:
    """The transfers of a graph.

    `order`: their nodes, by ID. `before`: for each ID a bit mask of the IDs whose transfers must
    have ended before its own can begin.
    """

    order: tuple[int, ...]
    before: tuple[int, ...]

    def reordered(self, ids: Sequence[int]) -> Topology:
        """The same transfers with the ID `ids[k]` as the k-th; one that is there several times
        travels in so many pieces.

        Raises ValueError when one would come before a transfer that it depends on.
        """
        new = [0] * len(self.order)
        for k, old in enumerate(ids):
            new[old] |= 1 << k
        before = []
        for k, old in enumerate(ids):
            mask = sum(new[other] for other in _bits(self.before[old]))
            if mask >> k:
                raise ValueError(f"transfer {old} would come before one that it depends on")
            before.append(mask)
        return Topology(tuple(self.order[old] for old in ids), tuple(before))


def traverse(
    inputs: Sequence[Sequence[int]], fetches: Iterable[int], places: Mapping[int, int]
) -> Topology:
    """Order of the transfers that the fetches need.

    `inputs[v]`: the nodes that node v waits for, by data or control. `places`: the transfers, each
    with its place among those that were added to the graph. Depth is the longest way from a root,
    so a parent is never as deep as its child and siblings mostly are alike; at one depth, the place
    decides. Raises UsageError when nodes wait for each other.

    This is the first half of TOPO: a fixed order of the allreduces, from the graph that runs them.
    Section 6.3.4 of the thesis: a reverse depth-first search from the fetches finds the Horovod
    operations and the dependencies of each, in O(V + E). An operation's ID is its place in the
    order in which all ranks transfer: parents before children, siblings as they were added to the
    graph, others by their depth.
    """
    bit = {node: 1 << k for k, node in enumerate(sorted(places, key=places.__getitem__))}
    depth = [0] * len(inputs)
    above = [0] * len(inputs)  # transfers at the node or before it
    opened, done = bytearray(len(inputs)), bytearray(len(inputs))
    found: list[int] = []
    for fetch in fetches:
        stack = [] if done[fetch] else [(fetch, iter(inputs[fetch]))]
        opened[fetch] = 1
        while stack:
            node, parents = stack[-1]
            for parent in parents:
                if done[parent]:
                    depth[node] = max(depth[node], depth[parent] + 1)
                    above[node] |= above[parent]
                elif opened[parent]:
                    raise UsageError(
                        f"nodes {parent} and {node} of the profiled graph depend on each other: "
                        "the profile is damaged",
                        remedy="profile the job again",
                    )
                else:
                    opened[parent] = 1
                    stack.append((parent, iter(inputs[parent])))
                    break
            else:
                stack.pop()
                done[node] = 1
                if node in bit:
                    found.append(node)
                    above[node] |= bit[node]
                if stack:
                    child = stack[-1][0]
                    depth[child] = max(depth[child], depth[node] + 1)
                    above[child] |= above[node]
    order = sorted(found, key=lambda node: (depth[node], places[node]))
    number = {bit[node]: k for k, node in enumerate(order)}
    before = tuple(
        sum(1 << number[1 << k] for k in _bits(above[node] & ~bit[node])) for node in order
    )
    return Topology(tuple(order), before)


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# Pieces are tried of the size of a bin where there are so many...
BINS = (4, 8, 16)
# ...and of a multiple of so many elements: TensorFlow takes such a slice without copying it.
ALIGNED = 64


def tac_bins(
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

    TAC chooses the gradient that travels next (TicTac, section 4.3), and the gradients that make
    way for others. A worker there receives parameters that are all ready when its step begins. Here
    a transfer is the allreduce of a gradient. Its variable's update and all other readers of the
    sum wait for it, and a gradient can travel only once the backward pass has it. So the comparison
    covers the gradients that are ready when the link is free.

    A gradient that is larger than a bin can be cut, to let others go first: all its pieces have its
    priority (P3, MLSys 2019; ByteScheduler, SOSP 2019).
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


# More bins must make the step shorter by this part: each is a negotiation and a transfer more.
WORTH = 0.005

Bins = tuple[Bin, ...]
Predict = Callable[[Bins], float]


@dataclass(frozen=True)
class Traversal:
    """One call's order, and what finding it took."""

    topology: Topology
    nodes: int
    edges: int
    seconds: float


@dataclass(frozen=True)
class Ordered:
    """`orders` for the plan; `bins` over the gradients of all calls, for the simulation."""

    orders: tuple[Order, ...]
    bins: Bins
    reasons: tuple[str, ...]


def traversed(model: Model, call: Call) -> Traversal:
    """The topology of a call's allreduces in its step; places are positions in the call's list."""
    parents = model.graphs[call.step].predecessors.lists
    began = time.perf_counter()
    consumed = bytearray(len(parents))
    for before in parents:
        for node in before:
            consumed[node] = 1
    fetches = [node for node, used in enumerate(consumed) if not used]
    topology = traverse(parents, fetches, call.places)
    seconds = time.perf_counter() - began
    return Traversal(topology, len(parents), sum(map(len, parents)), seconds)


def ordered(
    model: Model,
    ready: Sequence[float],
    cost: Cost,
    threshold: int,
    predict: Predict,
    waiting: Callable[[Call], Partition] | None = None,
) -> Ordered:
    """Return bins for every call.

    `ready`: seconds until each gradient is there, all calls' one after the other. `predict`: the
    seconds of a step with these bins. `waiting`: the work that waits for a call's gradients; with
    it the order is TAC's. Raises UsageError when two calls hand over lists that seem equal but
    whose gradients depend on each other in different ways.
    """
    first = [0, *itertools.accumulate(len(call.gradients) for call in model.calls)]
    name = "tac-bins" if waiting else "ordered-bins"
    ways: list[list[Bins]] = []
    reasons: list[str] = []
    for call, begin in zip(model.calls, first, strict=False):
        found = traversed(model, call)
        mine = [ready[begin + place] for place in range(len(call.gradients))]
        ways.append(
            list(
                tac_bins(call, found.topology, mine, waiting(call), cost, threshold)
                if waiting
                else _ways(call, found.topology, mine, cost, threshold)
            )
        )
        reasons.append(
            f"{name}: {call.scope} reduces {len(call.gradients)} gradients ({size(call.bytes)}); "
            f"traversed {found.nodes} nodes and {found.edges} edges of the graph in "
            f"{found.seconds * 1e3:.0f} ms"
        )
    chosen = [way[0] for way in ways]
    for index, (call, way) in enumerate(zip(model.calls, ways, strict=True)):
        seconds = []
        for bins in way:
            chosen[index] = bins
            seconds.append(predict(_all(chosen, first)))
        # of those that are as good as any, with all gradients whole where that can be, the fewest
        good = [k for k, s in enumerate(seconds) if s <= min(seconds) * (1 + WORTH)]
        taken = min(good, key=lambda k: (bool(pieces(way[k])), len(way[k]), seconds[k]))
        chosen[index] = way[taken]
        best: dict[int, float] = {}
        for bins, s in zip(way, seconds, strict=True):
            best[len(bins)] = min(s, best.get(len(bins), s))
        others = ", ".join(f"{k}: {s * 1e3:.1f} ms" for k, s in sorted(best.items())[:6])
        reasons.append(
            f"{name}: {counted(len(chosen[index]), 'bin')} of at most {size(threshold)} for "
            f"{call.scope}; predicted step by number of bins: {others}"
        )
        if cut := [s for bins, s in zip(way, seconds, strict=True) if pieces(bins)]:
            whole = min(s for bins, s in zip(way, seconds, strict=True) if not pieces(bins))
            told = (f"gradient {g} in {n} pieces" for g, n in pieces(chosen[index]).items())
            reasons.append(
                f"{name}: predicted step {whole * 1e3:.1f} ms with whole gradients, "
                f"{min(cut) * 1e3:.1f} ms with large gradients cut; cut: "
                f"{', '.join(told) or 'none'}"
            )
    return Ordered(_orders(model, chosen), _all(chosen, first), tuple(reasons))


def _ways(
    call: Call, topology: Topology, ready: Sequence[float], cost: Cost, threshold: int
) -> Iterator[Bins]:
    """Bins of positions in the call's list: in the thesis's order, and in that of production."""
    thesis = [call.places[node] for node in topology.order]
    produced = sorted(range(len(thesis)), key=lambda k: (ready[thesis[k]], k))
    topologies = [topology]
    # an order of production that was measured once can break a dependency by a hair
    with contextlib.suppress(ValueError):
        topologies.append(topology.reordered(produced))
    for one in topologies:
        order = [call.places[node] for node in one.order]
        sizes = [call.gradients[place].bytes for place in order]
        for runs in partitions(
            one.before, sizes, [ready[place] for place in order], cost, threshold
        ):
            yield tuple(
                Bin(tuple(order[k] for k in run), sum(sizes[k] for k in run)) for run in runs
            )


def _all(chosen: Sequence[Bins], first: Sequence[int]) -> Bins:
    return tuple(
        Bin(tuple(begin + place for place in bin_.tensors), bin_.bytes, bin_.elements)
        for bins, begin in zip(chosen, first, strict=False)
        for bin_ in bins
    )


def _orders(model: Model, chosen: Sequence[Bins]) -> tuple[Order, ...]:
    """One for each list that the job can be recognised by."""
    found: dict[tuple[object, ...], Order] = {}
    for call, bins in zip(model.calls, chosen, strict=True):
        shapes = tuple(gradient.shape for gradient in call.gradients)
        dtypes = tuple(gradient.dtype for gradient in call.gradients)
        order = Order(shapes, dtypes, bins)
        known = found.setdefault((shapes, dtypes), order)
        # the job has no way to distinguish two such calls, so the first call's bins serve both
        if known is not order and not _serves(known, traversed(model, call).topology, call):
            raise UsageError(
                f"two calls reduce gradients of the same shapes ({call.scope}) whose dependencies "
                "differ: no order of bins is right for both",
                remedy="plan without ordered-bins: --methods core-partition,knobs",
            )
    return tuple(found.values())


def _serves(order: Order, topology: Topology, call: Call) -> bool:
    """True if nothing in a bin waits for something in the same bin or in a later one."""
    bins_of: dict[int, list[int]] = {}
    for k, bin_ in enumerate(order.bins):
        for place in bin_.tensors:
            bins_of.setdefault(place, []).append(k)
    numbers = [bins_of[call.places[node]] for node in topology.order]
    return all(
        numbers[other][-1] < numbers[one][0]
        for one, mask in enumerate(topology.before)
        for other in range(one)
        if mask >> other & 1
    )
