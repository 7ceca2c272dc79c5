"""Where n threads go: packed into tiles, or one tile after the other (section III-B).

On the paper's machine, with two cores to a tile, "shared" fills whole tiles and so exists for even
counts only, and "spread" puts at most one thread on a tile: 34 + 34 cases on 68 cores. Where tiles
have other sizes, "shared" packs one tile after the other and "spread" deals threads out to all
tiles in turn.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Placement

# Table V: with this interval on the paper's 68 cores the prediction is right to 95 %
INTERVAL_FRACTION = 16


class _Tile(NamedTuple):
    """Core indices: all of the tile's, and those that are free."""

    cores: tuple[int, ...]
    free: list[int]


def placements(machine: Machine, threads: int) -> tuple[Placement, ...]:
    """The distinct ways to place that many threads on the idle machine, "spread" first.

    One thread has only "spread". On two-core tiles an odd count above the number of tiles has no
    case at all (empty), as in the paper. The count of all cores always has one.
    Raises UsageError when there are fewer cores than threads, or no thread.
    """
    _require(machine, threads, len(machine.cores))
    sizes = [len(tile) for tile in machine.tiles]
    if threads == 1 or max(sizes) == 1:
        return ("spread",)
    if set(sizes) == {2}:
        found: list[Placement] = ["spread"] if threads <= len(sizes) else []
        return (*found, "shared") if threads % 2 == 0 else tuple(found)

    def threads_on_tiles(placement: Placement) -> list[int]:
        cores = cores_for(machine, threads, placement)
        return sorted(Counter(machine.cores[core].tile for core in cores).values())

    alike = threads_on_tiles("spread") == threads_on_tiles("shared")
    return ("shared",) if alike else ("spread", "shared")


def cores_for(
    machine: Machine, threads: int, placement: Placement, among: Collection[int] | None = None
) -> tuple[int, ...]:
    """Core indices for that many threads, ascending; `among`: the cores that are free (all).

    "shared" takes the fewest tiles that hold the threads, and leaves large groups of free cores
    whole where a small one is enough. "spread" gives no tile a thread more than it must and
    prefers the tiles where the fewest cores are busy. When the free cores do not allow the
    placement in full, this is the nearest to it.
    Raises UsageError when fewer than `threads` cores are free.
    """
    free = set(range(len(machine.cores)) if among is None else among)
    tiles = [_Tile(cores, [core for core in cores if core in free]) for cores in machine.tiles]
    _require(machine, threads, sum(len(tile.free) for tile in tiles))
    chosen = _packed(machine, tiles, threads) if placement == "shared" else _dealt(tiles, threads)
    return tuple(sorted(chosen))


def ladder(machine: Machine, interval: int) -> tuple[int, ...]:
    """The thread counts of hill climbing (section III-C): 1, X, 2X, ... and the core count last.

    Counts without any placement (odd ones above the number of two-core tiles) are left out.
    Raises UsageError when the interval is below 1.
    """
    if interval < 1:
        raise UsageError(
            f"interval {interval}: must be at least 1 thread", remedy="use --interval 1 or more"
        )
    cores = len(machine.cores)
    counts = sorted({1, *range(interval, cores, interval), cores})
    return tuple(count for count in counts if placements(machine, count))


def default_interval(machine: Machine) -> int:
    """The interval X when none is given: 4 on the paper's 68 cores."""
    return max(1, len(machine.cores) // INTERVAL_FRACTION)


def _require(machine: Machine, threads: int, available: int) -> None:
    if threads < 1:
        raise UsageError(
            f"thread count {threads}: must be at least 1", remedy="use 1 thread or more"
        )
    if threads > available:
        which = "cores" if available == len(machine.cores) else "free cores"
        raise UsageError(
            f"thread count {threads} exceeds the {available} {which} of {machine.name}",
            remedy=f"use at most {available} threads",
        )


def _packed(machine: Machine, tiles: list[_Tile], threads: int) -> list[int]:
    """Whole tiles, the largest first; then the smallest that holds the rest."""
    left = list(tiles)
    chosen: list[int] = []
    sockets: set[int] = set()
    while (rest := threads - len(chosen)) > 0:
        fitting = [len(tile.free) for tile in left if len(tile.free) >= rest]
        wanted = min(fitting) if fitting else max(len(tile.free) for tile in left)
        alike = [tile for tile in left if len(tile.free) == wanted]
        # stay on the sockets already in use
        near = (tile for tile in alike if machine.cores[tile.cores[0]].socket in sockets)
        tile = next(near, alike[0])
        left.remove(tile)
        sockets.add(machine.cores[tile.cores[0]].socket)
        chosen += tile.free[:rest]
    return chosen


def _dealt(tiles: list[_Tile], threads: int) -> list[int]:
    """One core from each tile in turn, the tiles with the fewest busy cores first."""
    order = sorted(tiles, key=lambda tile: len(tile.cores) - len(tile.free))
    rounds = itertools.zip_longest(*(tile.free for tile in order))
    cores = (core for round_ in rounds for core in round_ if core is not None)
    return list(itertools.islice(cores, threads))
