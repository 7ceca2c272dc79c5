"""What leaves for another tier and when: as SuperNeurons does it with the outputs of convolutions,
as its tensor cache does, and, ours, as the times of the ops allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dltune.memory.accesses import Accesses
from dltune.memory.layered import LayerStep
from dltune.memory.schedule import Step
from dltune.memory.swaps import Swap, held
from dltune.memory.tensor_cache import CacheTooSmall, TensorCache
from dltune.memory.tiers import Tier


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
    """What a tensor cache of so many bytes moves (section 3.3.2): out when room is needed, in when
    a step needs it. Raises CacheTooSmall."""
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


def hidden(accesses: Accesses, seconds: Sequence[float], capacity: int, tier: Tier) -> list[Swap]:
    """Ours: when room is needed, what has had the most of its copy's time since it was last used
    leaves, of what has had all of it that which is needed again last; its copy begins right after
    that use. What comes back is asked for as late as its copy allows, or as soon as there is room.

    `seconds`: by step of the schedule. Raises CacheTooSmall.
    """
    moment = np.concatenate(([0.0], np.cumsum(seconds)))
    swaps = list(_leaving(accesses, moment.tolist(), capacity, tier))
    return _fetched(accesses, moment.tolist(), capacity, tier, swaps)


def _leaving(
    accesses: Accesses, moment: Sequence[float], capacity: int, tier: Tier
) -> Iterator[Swap]:
    """Each comes back when it is needed."""
    bytes = accesses.bytes
    copy = [tier.latency + size / tier.bandwidth for size in bytes]
    later = [list(reversed(row)) for row in accesses.at]  # by block, when it is used from now on
    last: dict[int, int] = {}  # by block that is there, its last use
    away: dict[int, tuple[int, int]] = {}
    free, used = 0.0, 0  # when the copy engine is, bytes that are

    def waits(block: int, now: int) -> float:
        done = max(free, moment[last[block] + 1]) + copy[block]
        return max(0.0, done - moment[now])

    for now, (row, gone) in enumerate(_steps(accesses)):
        for block in gone:
            used -= bytes[block] if last.pop(block, None) is not None else 0
        for block in row:
            later[block].pop()
            if block not in last:
                used += bytes[block]
                if block in away:
                    yield Swap(block, *away.pop(block), now, now)
            last[block] = now
        while used > capacity:
            idle = [block for block in last if last[block] < now]
            if not idle:
                raise CacheTooSmall(used - capacity)
            victim = min(idle, key=lambda block: (waits(block, now), -later[block][-1], block))
            free = max(free, moment[last[victim] + 1]) + copy[victim]
            away[victim] = last.pop(victim), now
            used -= bytes[victim]


def _fetched(
    accesses: Accesses,
    moment: Sequence[float],
    capacity: int,
    tier: Tier,
    swaps: Sequence[Swap],
) -> list[Swap]:
    """The last that is needed is the first to be given its time: none is in another's way."""
    level = held(accesses, swaps).tolist()
    found = []
    begun = moment[-1]
    for swap in sorted(swaps, key=lambda one: one.use, reverse=True):
        size = accesses.bytes[swap.block]
        begun = min(begun, moment[swap.use]) - tier.latency - size / tier.bandwidth
        back = swap.use
        while back > swap.freed and moment[back] > begun and level[back - 1] + size <= capacity:
            back -= 1
            level[back] += size
        found.append(swap._replace(back=back))
    return found


def _steps(accesses: Accesses) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """By step what it touches, and the blocks that have ended before it."""
    ended: list[list[int]] = [[] for _ in range(len(accesses.touched) + 1)]
    for block, end in enumerate(accesses.lives.end.tolist()):
        ended[end].append(block)
    return zip(accesses.touched, ended, strict=False)
