"""The tensors that leave for another tier, and when: as SuperNeurons does it with the outputs of
convolutions, as its tensor cache does, and, ours, as the times of the ops allow."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from dltune.schemas.machine import Tier
from dltune.systems.memory.model.accesses import Accesses
from dltune.systems.memory.model.layered import LayerStep
from dltune.systems.memory.model.schedule import Step
from dltune.systems.memory.model.swaps import Swap, held
from dltune.systems.memory.model.tensor_cache import CacheTooSmall, TensorCache


def published(step: LayerStep, steps: Sequence[Step], accesses: Accesses) -> list[Swap]:
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
