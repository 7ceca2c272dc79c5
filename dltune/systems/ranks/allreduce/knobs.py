"""Cycle time, fusion threshold and cache capacity from the simulation.

Horovod's own autotuner tries settings on the running job, one after the other and without a model
of it; here the same are tried on the simulated one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dltune.systems.ranks.allreduce.model import Setting
from dltune.systems.ranks.allreduce.section import Knobs

CYCLES = (0.5e-3, 1e-3, 2e-3, 3.5e-3, 5e-3, 10e-3)
MIB = 1 << 20
THRESHOLDS = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB)
# a change must make the step shorter by this part
WORTH = 0.005


def tuned(
    setting: Setting, tensors: int, largest: int | None, predict: Callable[[Setting], float]
) -> tuple[Knobs, tuple[str, ...]]:
    """Return the knobs under which a step is predicted shortest, and why.

    `largest`: bytes of the largest bin, when there are bins; the threshold then only has to hold
    it. The cache holds all `tensors`, with as many again for the job's other reductions. A single
    tensor too many empties it: the cache drops the least recently used, and the job uses all in
    turns.
    """
    own = setting.knobs
    capacity = own.cache_capacity
    while capacity < 2 * tensors:
        capacity = max(1024, 2 * capacity)
    thresholds = [own.fusion_threshold, *THRESHOLDS]
    if largest is not None:
        thresholds = [max(own.fusion_threshold, -(-largest // MIB) * MIB)]
    first = Knobs(own.cycle_time, thresholds[0], capacity)
    ways = [first] + [
        Knobs(cycle, threshold, capacity) for threshold in thresholds for cycle in CYCLES
    ]
    seconds = {
        knobs: predict(dataclasses.replace(setting, knobs=knobs)) for knobs in dict.fromkeys(ways)
    }
    best = min(seconds, key=seconds.__getitem__)
    if seconds[first] <= seconds[best] * (1 + WORTH):
        best = first
    told = ", ".join(
        f"{cycle * 1e3:g} ms: {s * 1e3:.1f}"
        for cycle, s in sorted(
            (k.cycle_time, s)
            for k, s in seconds.items()
            if k.fusion_threshold == best.fusion_threshold
        )
    )
    return best, (
        f"knobs: cycle time {best.cycle_time * 1e3:g} ms, fusion threshold "
        f"{best.fusion_threshold / MIB:g} MiB, cache of {best.cache_capacity} tensors (the "
        f"job reduces {tensors}); predicted step in ms by cycle time: {told}",
    )
