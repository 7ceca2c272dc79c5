"""Tensors that leave memory for another tier while a step runs, in addition to recomputation.

The tensors, and when they leave, are chosen as SuperNeurons does it with the outputs of
convolutions (`published`), as its tensor cache does (`cached`), and, ours, as the times of the ops
allow (`hidden` and `prefetched`). `overlapped` simulates the step; `Offloader` plans for a file as
the other tier.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine, Tier
from dltune.schemas.profile import Step
from dltune.simulate.engine import CoreSet, FifoWork, Graph, Link
from dltune.simulate.step_graph import CSR, Amounts, Kind
from dltune.systems.memory.model.layered import LayerStep
from dltune.systems.memory.model.profiled_step import MeasuredStep
from dltune.systems.memory.model.schedule import Accesses, accesses
from dltune.systems.memory.model.schedule import Step as Run
from dltune.systems.memory.model.selection import Selection
from dltune.systems.memory.section import Offloaded

GIB = 1 << 30


@dataclass(frozen=True)
class Tiers:
    """`near`: bytes of the memory that ops compute in. `far`: the fastest first.

    One tier is that in which ops compute; others hold tensors without room there (SuperNeurons'
    unified tensor pool, Fig. 7). Copies in and out are done by engines separate from the cores.
    """

    near: int
    far: Sequence[Tier]

    @classmethod
    def of(cls, machine: Machine) -> Tiers:
        """Return the machine's tiers. Raises UsageError when its memory size is unknown."""
        if machine.memory is None:
            raise UsageError(
                f"the machine {machine.name!r} does not state the size of its memory",
                remedy="add `memory`, in bytes, to the machine file",
            )
        return cls(machine.memory, machine.tiers)


def link(tier: Tier) -> Link:
    """One way of it: one copy after the other, of those that wait the most urgent."""
    return Link(tier.bandwidth, tier.latency, by_priority=True)


# as section 3.3.2 has its links: over PCI-E, between GPUs at one switch, to another node's GPU
HOST = Tier("pinned host memory", 256 * GIB, 8e9)
PEER = Tier("another GPU", 12 * GIB, 10e9)
REMOTE = Tier("another node's GPU", 12 * GIB, 6e9)

# the paper's card; the paper does not give its hosts' memory
GPUS: Mapping[str, Tiers] = {
    "k40c": Tiers(12 * GIB, (HOST,)),
    "k40c-peers": Tiers(12 * GIB, (PEER, HOST, REMOTE)),
}


def with_file(near: int, bytes: int, bandwidth: float) -> Tiers:
    """Return main memory and a file next to it; its storage's speed is measured, not known."""
    return Tiers(near, (Tier("file", bytes, bandwidth),))


class Swap(NamedTuple):
    """A `block` of `Accesses` that leaves and comes back. The copy out begins when step `out` has
    ended, and must have ended before step `freed` begins; its memory is taken again before step
    `back`, and the copy in must have ended before step `use` begins. `tier`: which of the far
    ones. out < freed <= back <= use.

    The block leaves for another tier between two uses.
    """

    block: int
    out: int
    freed: int
    back: int
    use: int
    tier: int = 0


class FarTiersFull(Exception):
    """No tier has room for a block that leaves."""


def held(accesses: Accesses, swaps: Iterable[Swap]) -> Amounts:
    """By step the bytes of the blocks that are alive and not away."""
    bytes = accesses.bytes
    change = np.zeros(len(accesses.touched) + 1, np.int64)
    for swap in swaps:
        change[swap.freed] -= bytes[swap.block]
        change[swap.back] += bytes[swap.block]
    return accesses.levels + np.cumsum(change)[:-1]


def placed(accesses: Accesses, swaps: Sequence[Swap], tiers: Tiers) -> list[Swap]:
    """Each in the fastest tier that has room for it from `out` to `use`. Raises FarTiersFull."""
    bytes = accesses.bytes
    room = [np.full(len(accesses.touched), tier.bytes, np.int64) for tier in tiers.far]
    found = []
    for swap in sorted(swaps, key=lambda one: one.out):
        size, span = bytes[swap.block], slice(swap.out, swap.use + 1)
        for tier, free in enumerate(room):
            if free[span].min() >= size:
                free[span] -= size
                found.append(swap._replace(tier=tier))
                break
        else:
            raise FarTiersFull(f"{size} bytes have room in no tier")
    return found


def traffic(accesses: Accesses, swaps: Iterable[Swap]) -> int:
    """Bytes that are copied, out and in."""
    bytes = accesses.bytes
    return 2 * sum(bytes[swap.block] for swap in swaps)


# computing is counted in seconds of one op
_SECOND = FifoWork(1.0, 1.0, 1)


@dataclass(frozen=True)
class Overlapped:
    """`seconds`: of the whole step. `computing`: those of its ops. `traffic`: bytes copied, out and
    in. `start`: by step of the schedule, when it began."""

    seconds: float
    computing: float
    traffic: int
    start: Sequence[float]

    @property
    def stall(self) -> float:
        """Seconds in which the cores wait for a copy."""
        return max(0.0, self.seconds - self.computing)


def overlapped(
    accesses: Accesses, seconds: Sequence[float], swaps: Sequence[Swap], tiers: Tiers
) -> Overlapped:
    """Simulate a step whose copies to other tiers and back overlap with computing. `seconds`: by
    step of the schedule. A step waits for the tensors that it frees and for those that it reads; a
    copy in waits for the memory that it comes into.

    The cores do one step of the schedule after the other. Each far tier has a copy engine for each
    direction. Of the copies that wait, the engine does that which a step will wait for first.
    """
    steps, bytes = len(seconds), accesses.bytes
    outs = [steps + 2 * number for number in range(len(swaps))]
    rows: list[list[int]] = [[step + 1] for step in range(steps - 1)]
    rows += [[] for _ in range(min(steps, 1) + 2 * len(swaps))]
    freed: dict[int, list[int]] = {}  # by step, the copies out that make room before it
    for swap, out in zip(swaps, outs, strict=True):
        rows[swap.out].append(out)
        rows[out] += [swap.freed, out + 1]
        freed.setdefault(swap.freed, []).append(out)
    for swap, out in zip(swaps, outs, strict=True):
        rows[out + 1].append(swap.use)
        rows[swap.back - 1].append(out + 1)
        for other in freed.get(swap.back, ()):
            if other != out:
                rows[other].append(out + 1)
    where = np.zeros(len(rows), np.int32)
    amount, urgency = np.zeros(len(rows)), np.zeros(len(rows))
    for swap, out in zip(swaps, outs, strict=True):
        where[out : out + 2] = 1 + 2 * swap.tier, 2 + 2 * swap.tier
        amount[out : out + 2] = bytes[swap.block]
        urgency[out : out + 2] = swap.freed, swap.use
    op = np.where(where == 0, 0, -1).astype(np.int32)
    runs = np.zeros(len(rows))
    runs[:steps] = seconds
    links = [link(tier) for tier in tiers.far for _ in range(2)]
    made = Graph(CSR.of(map(dict.fromkeys, rows)), op, runs).on(
        [CoreSet([_SECOND], cores=1, inter=1)], links, where, amount, urgency
    )
    return Overlapped(
        max(made.end[:steps], default=0.0),
        float(sum(seconds)),
        traffic(accesses, swaps),
        made.start[:steps],
    )


class CacheTooSmall(Exception):
    """Locked tensors leave no room. `missing`: bytes."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} bytes are missing in addition to the locked tensors")
        self.missing = missing


class Checked(NamedTuple):
    """`hit`: it was there. `evicted`: what left for the other tier, the least recently used
    first."""

    hit: bool
    evicted: tuple[int, ...] = ()


@dataclass
class TensorCache:
    """The tensor cache (SuperNeurons, section 3.3.2, Algorithm 2): a tier of memory keeps the
    tensors that were used last, and those that a layer works on are locked. `capacity` in bytes.
    `held`: by tensor its bytes, the least recently used first. Tensors are known by numbers of the
    caller's."""

    capacity: int
    held: OrderedDict[int, int] = field(default_factory=OrderedDict)
    locked: set[int] = field(default_factory=set)
    used: int = 0

    def check(self, tensor: int, bytes: int) -> Checked:
        """Has it at the front from here on, and locked. Raises CacheTooSmall, having evicted
        nothing."""
        if tensor in self.held:
            self.held.move_to_end(tensor)
            self.locked.add(tensor)
            return Checked(True)
        evicted = self._out(bytes)
        self.held[tensor] = bytes
        self.used += bytes
        self.locked.add(tensor)
        return Checked(False, evicted)

    def lock(self, tensors: Iterable[int]) -> None:
        """Those of them that are there stay until `unlock`: a layer works on them."""
        self.locked.update(tensor for tensor in tensors if tensor in self.held)

    def unlock(self) -> None:
        """The layer has run."""
        self.locked.clear()

    def release(self, tensor: int) -> None:
        """Nobody needs it any more: it goes nowhere. One that is not there is no fault."""
        self.used -= self.held.pop(tensor, 0)
        self.locked.discard(tensor)

    def _out(self, bytes: int) -> tuple[int, ...]:
        missing = self.used + bytes - self.capacity
        evicted: list[int] = []
        for tensor, size in self.held.items():
            if missing <= 0:
                break
            if tensor not in self.locked:
                evicted.append(tensor)
                missing -= size
        if missing > 0:
            raise CacheTooSmall(missing)
        for tensor in evicted:
            self.release(tensor)
        return tuple(evicted)


def published(step: LayerStep, steps: Sequence[Run], accesses: Accesses) -> list[Swap]:
    """Outputs of convolutions that `steps` bring back (section 3.3.1). Each leaves while the layers
    up to the next convolution run, and comes back while those from the last convolution's gradient
    before its use to that use do; the last one's from the first gradient on."""
    layers, half = step.network.layers, len(step.route)
    convs = [node for node, number in enumerate(step.route) if layers[number].kind == "conv"]
    behind = dict(zip(convs, [*convs[1:], half], strict=False))
    # forward parts run once each before the first gradient, in the order of their nodes
    gradients = {step.backward(conv) for conv in convs}
    owners = accesses.lives.tensor.tolist()
    block = {owners[one]: one for row in accesses.touched[:half] for one in row}
    producer = step.graph.tensors.producer.tolist()
    found = []
    asked = half
    for use, one in enumerate(steps):
        for tensor in one.fetched:
            conv = producer[tensor]
            read = max(at for at in accesses.at[block[tensor]] if at < half)
            freed = max(behind[conv], read + 1)
            found.append(Swap(block[tensor], conv, freed, max(asked, freed), use))
        if one.node in gradients:
            asked = use
    return found


def cached(accesses: Accesses, capacity: int) -> list[Swap]:
    """Return the moves of a tensor cache of so many bytes (section 3.3.2): out when room is needed,
    in when a step needs it. Raises CacheTooSmall."""
    cache, bytes = TensorCache(capacity), accesses.bytes
    away: dict[int, int] = {}  # by block, the step before which it left
    found = []
    for now, (row, gone) in enumerate(_steps(accesses)):
        for block in gone:
            cache.release(block)
        cache.lock(row)
        for block in row:
            away.update(dict.fromkeys(cache.check(block, bytes[block]).evicted, now))
            if block in away:
                left = away.pop(block)
                found.append(Swap(block, left - 1, left, now, now))
        cache.unlock()
    return found


def hidden(
    accesses: Accesses,
    seconds: Sequence[float],
    capacity: int,
    tier: Tier,
    leaves: Mapping[int, Collection[int]] | None = None,
) -> list[Swap]:
    """Return swaps. Ours: a step's order is known, so the block that is needed again last leaves
    (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966). Its copy
    begins right after its last use before that; it is asked for ahead. `seconds`: by step of the
    schedule. `leaves`: by block, the steps after which it can leave; None: all. Raises
    CacheTooSmall."""
    swaps = list(_leaving(accesses, capacity, leaves))
    return prefetched(accesses, seconds, capacity, tier, swaps)


def prefetched(
    accesses: Accesses,
    seconds: Sequence[float],
    capacity: int,
    tier: Tier,
    swaps: Sequence[Swap],
) -> list[Swap]:
    """The same, but each is asked for as long before its use as its copy takes, or since when there
    is room in `capacity` bytes. The last that is needed is the first to be given its time, so that
    none is in another's way."""
    moment, level = _moments(seconds), held(accesses, swaps).tolist()
    found = []
    begun = moment[-1]
    for swap in sorted(swaps, key=lambda one: one.use, reverse=True):
        size = accesses.bytes[swap.block]
        begun = min(begun, moment[swap.use]) - tier.latency - size / tier.bandwidth
        back = swap.back
        while back > swap.freed and moment[back] > begun and level[back - 1] + size <= capacity:
            back -= 1
            level[back] += size
        found.append(swap._replace(back=back))
    return found


def _leaving(
    accesses: Accesses, capacity: int, leaves: Mapping[int, Collection[int]] | None
) -> Iterator[Swap]:
    """Each comes back when it is needed."""
    bytes = accesses.bytes
    later = [list(reversed(row)) for row in accesses.at]  # by block, when it is used from now on
    last: dict[int, int] = {}  # by block that is there, its last use
    away: dict[int, tuple[int, int]] = {}
    used = 0
    for now, (row, gone) in enumerate(_steps(accesses)):
        used -= sum(bytes[block] for block in gone if last.pop(block, None) is not None)
        for block in row:
            later[block].pop()
            if block not in last:
                used += bytes[block]
                if block in away:
                    yield Swap(block, *away.pop(block), now, now)
            last[block] = now
        if used <= capacity:
            continue
        idle = sorted(
            (later[block][-1], block)
            for block, at in last.items()
            if at < now and (leaves is None or at in leaves.get(block, ()))
        )
        while used > capacity:
            if not idle:
                raise CacheTooSmall(used - capacity)
            _, block = idle.pop()
            away[block] = last.pop(block), now
            used -= bytes[block]


def _moments(seconds: Sequence[float]) -> list[float]:
    """When each step begins, and the last one ends, where nothing waits for a copy."""
    return [0.0, *itertools.accumulate(seconds)]


def _steps(accesses: Accesses) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield by step the blocks that it touches, and the blocks that have ended before it."""
    ended: list[list[int]] = [[] for _ in range(len(accesses.touched) + 1)]
    for block, end in enumerate(accesses.lives.end.tolist()):
        ended[end].append(block)
    return zip(accesses.touched, ended, strict=False)


SMALLEST = 64 << 10  # bytes; a smaller tensor is not worth a copy
# types of tensors that hold their values elsewhere
_HANDLES = ("resource", "variant", "string")


@dataclass(frozen=True, eq=False)
class Offloading:
    """A selection, and the tensors that leave memory in addition. `level`: bytes by step that are
    held then. `waited`: seconds in which the step waits for copies."""

    selection: Selection
    swaps: Sequence[Swap]
    level: Amounts
    waited: float
    offloaded: Sequence[Offloaded]

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))

    @property
    def seconds(self) -> float:
        """That the step takes longer."""
        return self.selection.seconds + self.waited


class Offloader:
    """For a step and the file's tier."""

    def __init__(self, found: MeasuredStep, step: Step, tier: Tier) -> None:
        self.found, self.tier = found, tier
        self.leaving = set(_offload_leaving(found, step))
        self.place = {node: number for number, node in enumerate(found.order)}

    def offload(self, selection: Selection, room: int) -> Offloading:
        """So that no more than `room` bytes are held. Raises CacheTooSmall."""
        uses, alone = self._uses(selection)
        steps = selection.steps
        seconds = [self.found.seconds[step.node] for step in steps]
        swaps = hidden(uses, seconds, room, self.tier, alone)
        swaps.sort(key=lambda one: one.out)
        made = overlapped(uses, seconds, swaps, Tiers(room, (self.tier,)))
        tensors = self.found.graph.tensors
        offloaded = []
        for swap in swaps:
            last = max(at for at in uses.at[swap.block] if at <= swap.out)
            tensor = alone[swap.block][last]
            place, slot = self.place[int(tensors.producer[tensor])], int(tensors.slot[tensor])
            offloaded.append(Offloaded(place, slot, int(tensors.bytes[tensor]), *swap[1:5]))
        return Offloading(selection, swaps, held(uses, swaps), made.stall, offloaded)

    def least(self, selection: Selection) -> int:
        """The fewest bytes with which it can be done, by halving."""
        uses, alone = self._uses(selection)
        low, high = uses.largest - 1, int(uses.levels.max(initial=0))
        seconds = [0.0] * len(selection.steps)
        while high - low > 1:
            room = (low + high) // 2
            try:
                high = int(held(uses, hidden(uses, seconds, room, self.tier, alone)).max())
            except CacheTooSmall:
                low = room
        return high

    def _uses(self, selection: Selection) -> tuple[Accesses, dict[int, dict[int, int]]]:
        """Return the accesses and, by block, after which steps it can leave, and which tensor then
        does."""
        found, steps = self.found, selection.steps
        uses = accesses(found.graph, steps, found.written, found.forwarded)
        alone = {
            block: {at: tensor for at, tensor in row.items() if tensor in self.leaving}
            for block, row in uses.alone(found.graph, steps).items()
        }
        return uses, alone


def _offload_leaving(found: MeasuredStep, step: Step) -> Iterator[int]:
    """Yield the tensors that can leave."""
    tensors = found.graph.tensors
    held = (tensors.kind == Kind.RESULT)[tensors.alias] & (tensors.bytes >= SMALLEST)
    for tensor in np.flatnonzero(held).tolist():
        outputs, slot = step.nodes[tensors.producer[tensor]].outputs, tensors.slot[tensor]
        if slot < len(outputs) and outputs[slot].dtype not in _HANDLES:
            yield tensor
