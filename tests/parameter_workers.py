"""Workers' graphs for tests, and Algorithms 1 to 3 of the paper as they are printed, slowly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from dltune.simulate.overlap import Partition, partition
from dltune.simulate.step_graph import CSR, StepGraph, Tensors


@dataclass(frozen=True)
class Worker:
    """Receives are the first nodes, `channel` by receive. By node, those `before`, and `time` in
    nanoseconds."""

    channel: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    time: tuple[int, ...]

    @property
    def graph(self) -> StepGraph:
        count = len(self.before)
        tensors = Tensors.of([(node, 0) for node in range(count)], [1] * count)
        nobody = CSR.of(() for _ in self.before)
        return StepGraph(
            [f"n{node}" for node in range(count)],
            np.arange(count, dtype=np.int32),
            np.ones(count),
            tensors,
            CSR.of(self.before),
            nobody,
            np.zeros(count, np.bool_),
        )

    @property
    def partition(self) -> Partition:
        return partition(self.graph, dict(enumerate(self.channel)), [t * 1e-9 for t in self.time])

    def dependencies(self) -> list[frozenset[int]]:
        """By node, the receives that it needs (section 4.1)."""
        found: list[frozenset[int]] = []
        for node, before in enumerate(self.before):
            own = {node} if node < len(self.channel) else set()
            found.append(frozenset(own.union(*(found[other] for other in before))))
        return found


@st.composite
def workers(draw: st.DrawFn, most: int = 7, channels: int = 1) -> Worker:
    receives = draw(st.integers(1, most))
    ops = draw(st.integers(0, 14))
    channel = draw(st.lists(st.integers(0, channels - 1), min_size=receives, max_size=receives))
    before: list[tuple[int, ...]] = [()] * receives
    for node in range(receives, receives + ops):
        before.append(tuple(sorted(draw(st.sets(st.integers(0, node - 1), max_size=3)))))
    # few different times, so that comparisons end in ties
    time = draw(st.lists(st.integers(0, 4), min_size=len(before), max_size=len(before)))
    times = [max(1, t) if node < receives else t for node, t in enumerate(time)]
    return Worker(tuple(channel), tuple(before), tuple(times))


def printed_properties(
    worker: Worker, outstanding: set[int], time: Sequence[int]
) -> tuple[dict[int, int], dict[int, float]]:
    """Algorithm 1; of several channels, the busiest is what an op waits for."""
    direct = dict.fromkeys(outstanding, 0)
    impending: dict[int, float] = dict.fromkeys(outstanding, math.inf)
    for node, needs in enumerate(worker.dependencies()):
        if node in outstanding:
            continue
        left = needs & outstanding
        if len(left) == 1:
            direct[next(iter(left))] += time[node]
        elif left:
            load = [0] * (max(worker.channel) + 1)
            for receive in left:
                load[worker.channel[receive]] += time[receive]
            for receive in left:
                impending[receive] = min(impending[receive], max(load))
    return direct, impending


def printed_tic(worker: Worker) -> list[int]:
    """Algorithm 2."""
    receives = len(worker.channel)
    ones = [1] * receives + [0] * (len(worker.time) - receives)
    _, impending = printed_properties(worker, set(range(receives)), ones)
    return sorted(range(receives), key=lambda receive: impending[receive])


def printed_tac(worker: Worker) -> list[int]:
    """Algorithm 3 with the comparison of equation 6."""
    outstanding = set(range(len(worker.channel)))
    order: list[int] = []
    while outstanding:
        properties = printed_properties(worker, outstanding, worker.time)
        best = min(outstanding)
        for other in sorted(outstanding):
            if _precedes(other, best, worker.time, *properties):
                best = other
        order.append(best)
        outstanding.remove(best)
    return order


def _precedes(
    a: int, b: int, time: Sequence[int], direct: dict[int, int], impending: dict[int, float]
) -> bool:
    left, right = min(direct[b], time[a]), min(direct[a], time[b])
    return left < right if left != right else impending[a] < impending[b]
