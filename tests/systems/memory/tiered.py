"""Steps of training whose memory moves between tiers, and, slowly, how long they take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from dltune.simulate.step_graph import CSR, StepGraph, Tensors
from dltune.systems.memory.model.schedule import Accesses, Step, accesses
from dltune.systems.memory.offload import Swap, Tiers


@st.composite
def used(draw: st.DrawFn) -> tuple[Accesses, list[float]]:
    """Some nodes one after the other, and as many that read them from the last to the first; and
    seconds of each, no two sums of which are alike."""
    half = draw(st.integers(1, 6))
    reads: list[list[int]] = [[]]
    reads += [sorted({node - 1, draw(st.integers(0, node - 1))}) for node in range(1, half)]
    reads += [sorted({half + k - 1, half - 1 - k}) for k in range(half)]
    count = 2 * half
    bytes = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    graph = StepGraph(
        [str(node) for node in range(count)],
        np.arange(count, dtype=np.int32),
        np.ones(count),
        Tensors.of([(node, 0) for node in range(count)], bytes),
        CSR.of(reads),
        CSR.of(() for _ in reads),
        np.zeros(count, np.bool_),
    )
    seconds = np.random.default_rng(draw(st.integers(0, 99))).uniform(0.5, 3.0, count)
    return accesses(graph, [Step(node) for node in range(count)]), seconds.tolist()


def replayed(
    found: Accesses, seconds: Sequence[float], swaps: Sequence[Swap], tiers: Tiers
) -> float:
    """When the last step ends: whatever can begin first begins, looked for anew each time."""
    count, bytes = len(seconds), found.bytes
    copies = range(len(swaps))
    end: dict[tuple[str, int], float] = {}
    free: dict[tuple[str, int], float] = {}  # by resource

    def needs(kind: str, number: int) -> list[tuple[str, int]]:
        if kind == "step":
            out = [("out", k) for k in copies if swaps[k].freed == number]
            back = [("in", k) for k in copies if swaps[k].use == number]
            return [("step", number - 1)] * (number > 0) + out + back
        swap = swaps[number]
        if kind == "out":
            return [("step", swap.out)]
        out = [("out", k) for k in copies if k == number or swaps[k].freed == swap.back]
        return [("step", swap.back - 1), *out]

    tasks = [("step", at) for at in range(count)]
    tasks += [(kind, k) for k in copies for kind in ("out", "in")]
    while len(end) < len(tasks):
        able = []
        for task in tasks:
            before = needs(*task)
            if task in end or any(one not in end for one in before):
                continue
            kind, number = task
            ready = max((end[one] for one in before), default=0.0)
            where = ("cores", 0) if kind == "step" else (kind, swaps[number].tier)
            urgency = {"out": "freed", "in": "use"}.get(kind)
            place = getattr(swaps[number], urgency) if urgency else number
            able.append((max(ready, free.get(where, 0.0)), place, number, task, where))
        start, _, number, task, where = min(able)
        if task[0] == "step":
            length = seconds[number]
        else:
            tier = tiers.far[swaps[number].tier]
            length = tier.latency + bytes[swaps[number].block] / tier.bandwidth
        end[task] = free[where] = start + length
    return end["step", count - 1]
