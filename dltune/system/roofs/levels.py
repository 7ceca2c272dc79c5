"""The levels of memory that are measured, and how much of each a core works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.schemas.machine import Machine
from dltune.schemas.roofs import MEMORY
from dltune.system import topology

# memory is what caches hold at most a quarter of
BEYOND_CACHES = 4
# where the system tells of no caches: more than the largest of today, 1 GiB, would take too long
_UNKNOWN = 64 * 2**20


@dataclass(frozen=True)
class Level:
    """`bytes` of it that all cores find together. `one` and `each`: bytes to work on, of a core
    that is alone, and of each core, in the machine's order, when all are at work."""

    name: str
    bytes: int | None
    one: int
    each: tuple[int, ...]


def levels(machine: Machine, root: Path = Path("/")) -> list[Level]:
    """The caches, the nearest first, and memory.

    A core works on half of its part of a cache, so that it finds room beside what else is there;
    where the level before is not much smaller, on all of that and half of this one, which may hold
    other lines than the one before it.
    """
    firsts = [core.cpus[0] for core in machine.cores]
    caches = [sorted(topology.caches_of(root, cpu), key=lambda c: c.level) for cpu in firsts]
    depth = min(map(len, caches), default=0)
    found: list[Level] = []
    before = [0] * len(firsts)
    for place in range(depth):
        at = [of[place] for of in caches]
        if not all(cache.size for cache in at):
            break
        sharing = [sum(cpu in cache.cpus for cpu in firsts) for cache in at]
        shares = [(c.size or 0) // n for c, n in zip(at, sharing, strict=True)]
        found.append(
            Level(
                f"L{at[0].level}",
                sum({cache.cpus: cache.size or 0 for cache in at}.values()),
                _part(at[0].size or 0, before[0]),
                tuple(map(_part, shares, before)),
            )
        )
        before = shares
    whole = found[-1].bytes if found else None
    alone = (caches[0][depth - 1].size or 0) if found else _UNKNOWN
    each = (whole or _UNKNOWN) // len(firsts)
    memory = Level(MEMORY, None, BEYOND_CACHES * alone, (BEYOND_CACHES * each,) * len(firsts))
    return [*found, memory]


def _part(share: int, before: int) -> int:
    return share // 2 if share >= 4 * before else before + share // 2


def room(found: Sequence[Level]) -> list[int]:
    """Bytes of arrays that each core needs for all levels, the first core as it is alone too."""
    most = [max(of) for of in zip(*(level.each for level in found), strict=True)]
    return [max(most[0], *(level.one for level in found)), *most[1:]]
