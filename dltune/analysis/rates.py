"""Rates of an op at one thread count and placement, from its counters, its shapes and its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dltune.schemas.profile import OpTime

# bytes that a miss of the last level cache brings: the line of x86-64 and of most 64-bit Arm cores
CACHE_LINE = 64

# pairs of events (misses, accesses) of the last level cache, the first that was counted is taken
LAST_LEVEL = (
    (("LLC-load-misses", "LLC-store-misses"), ("LLC-loads", "LLC-stores")),
    (("LLC-load-misses",), ("LLC-loads",)),
    (("cache-misses",), ("cache-references",)),
    (("LLC-misses",), ("LLC-accesses",)),
)

FAULTS = (("page-faults",), ("minor-faults", "major-faults"), ("minor-faults",))


@dataclass(frozen=True)
class Rates:
    """Each is None if its inputs were not counted, or is 0 below the line.

    `ipc`: instructions per cycle. `miss_rate`: of accesses to the last level cache. `memory_rate`:
    bytes/s that its misses bring. `faults` and `switches`: of one run, over all its threads.
    `cpu_share`: time that its threads had a CPU, over time * threads. `flop_rate`: flop/s.
    `intensity`: flop per byte, of memory where misses were counted, else of bytes that must move.
    `byte_rate`: bytes/s that must move, from wherever.
    """

    ipc: float | None = None
    miss_rate: float | None = None
    memory_rate: float | None = None
    faults: float | None = None
    switches: float | None = None
    cpu_share: float | None = None
    flop_rate: float | None = None
    intensity: float | None = None
    byte_rate: float | None = None


def rates(time: OpTime, operations: int | None = None, moved: int | None = None) -> Rates:
    """`operations` and `moved`: of one run, as `flops.py` has them.

    Counts are means of a run and the time is the median: they are of the same runs, but not of the
    same one.
    """
    # without what perf appends to say where it counted: instructions:u
    counted = {count.event.partition(":")[0]: count.value for count in time.counts}
    misses, accesses = _last_level(counted)
    faults = (found for events in FAULTS if (found := _sum(counted, events)) is not None)
    clock = counted.get("task-clock", counted.get("cpu-clock"))
    memory = None if misses is None else misses * CACHE_LINE
    return Rates(
        ipc=_over(counted.get("instructions"), counted.get("cycles", counted.get("cpu-cycles"))),
        miss_rate=_over(misses, accesses),
        memory_rate=_over(memory, time.median),
        faults=next(faults, None),
        switches=counted.get("context-switches"),
        cpu_share=_over(clock, time.median * time.threads),
        flop_rate=_over(operations, time.median),
        intensity=_over(operations, moved if memory is None else memory),
        byte_rate=_over(moved, time.median),
    )


def _last_level(counted: Mapping[str, float]) -> tuple[float | None, float | None]:
    for misses, accesses in LAST_LEVEL:
        if (missed := _sum(counted, misses)) is not None:
            return missed, _sum(counted, accesses)
    return None, None


def _sum(counted: Mapping[str, float], events: tuple[str, ...]) -> float | None:
    if all(event in counted for event in events):
        return sum(counted[event] for event in events)
    return None


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
