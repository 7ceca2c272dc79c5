"""The order and number of bins under which the predicted step is shortest."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.base.formatting import counted, size
from dltune.simulate.overlap import Cost, Partition, partitions
from dltune.systems.ranks.allreduce import priority
from dltune.systems.ranks.allreduce.calls import Call
from dltune.systems.ranks.allreduce.model import Model
from dltune.systems.ranks.allreduce.section import Bin, Order, pieces
from dltune.systems.ranks.allreduce.topology import Topology, traverse

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
                priority.ways(call, found.topology, mine, waiting(call), cost, threshold)
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
