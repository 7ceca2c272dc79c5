"""Plans of memory at budgets from the least to what a job takes, each run by a simulated executor
that counts references in an allocator, against what was planned.

    python scripts/bench/sweep_memory.py PROFILE... [--budgets 50] [--rounds 20] [--all]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.schemas import profile
from dltune.schemas.profile import Profile
from dltune.systems.memory.decide import decide
from dltune.systems.memory.model import selection
from dltune.systems.memory.model.allocator import Held, executed
from dltune.systems.memory.model.profiled_step import measured
from dltune.systems.memory.request import Request
from dltune.systems.memory.section import Memory

MIB = 1 << 20


@dataclass(frozen=True)
class Point:
    """`budget` in bytes, `seconds` that planning took."""

    budget: int
    section: Memory
    held: Held
    seconds: float

    @property
    def peak(self) -> int:
        return self.section.live + self.held.peak

    @property
    def deviation(self) -> float:
        """Of what the executor took from what was planned, a share."""
        return self.peak / (self.section.live + self.section.peak) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="+", type=Path, metavar="PROFILE")
    parser.add_argument("--budgets", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=selection.ROUNDS, help="of deciding anew")
    parser.add_argument("--all", action="store_true", help="print each budget")
    arguments = parser.parse_args()
    selection.ROUNDS = arguments.rounds
    for path in arguments.profiles:
        points = []
        for point in sweep(profile.load(path), arguments.budgets):
            points.append(point)
            if arguments.all:
                print(row(point), flush=True)
        print(summary(path.stem, points), flush=True)


def sweep(found: Profile, budgets: int) -> Iterator[Point]:
    """From the least to the step as it is, evenly, both included."""
    given = measured(max(found.steps, key=lambda one: one.share))
    number = {name: node for node, name in enumerate(given.graph.names)}
    least = decide(found).section
    low, high = least.live + least.peak, least.live + least.before
    for place in range(budgets):
        budget = low + (high - low) * place // (budgets - 1)
        began = time.perf_counter()
        section = decide(found, Request(budget)).section
        seconds = time.perf_counter() - began
        order = [number[section.nodes[at]] for at in section.order]
        yield Point(budget, section, executed(given, order), seconds)


def row(point: Point) -> str:
    section = point.section
    return (
        f"{point.budget / MIB:9.2f} planned {(section.live + section.peak) / MIB:9.2f} "
        f"executed {point.peak / MIB:9.2f} added {section.added * 1e3:8.2f} ms "
        f"pool {point.held.top / point.held.peak - 1:6.1%} in {point.seconds:5.1f} s"
    )


def summary(name: str, points: Sequence[Point]) -> str:
    """A row of docs/research/benchmarks/memory.md."""
    added = [point.section.added for point in points]
    dearer = sum(later > before for before, later in itertools.pairwise(added))
    seconds = sorted(point.seconds for point in points)
    waste = max(point.held.top / point.held.peak - 1 for point in points)
    return (
        f"| {name} | {len(points[0].section.nodes):,} "
        f"| {points[0].budget / MIB:.1f} to {points[-1].budget / MIB:.1f} "
        f"| {max(abs(point.deviation) for point in points):.4%} "
        f"| {sum(point.peak <= point.budget for point in points)} of {len(points)} "
        f"| {added[0] * 1e3:.1f} ms, {dearer} "
        f"| {seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f} | {waste:.1%} |"
    )


if __name__ == "__main__":
    main()
