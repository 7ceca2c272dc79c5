"""What a memory budget costs: dltune's selections beside Checkmate's and rotor's.

    python scripts/bench/bench_memory.py profile.json [...] --limit 60

Each rival selects under some budgets of its own count; what its order really needs is counted as
dltune counts, and dltune's selections get that as their budget: added time at equal peaks. Networks
by layers, with times by a roofline, and small graphs, by chance and as chains, are there without a
profile. Needs scipy for the rivals.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from memory_rivals import Blocks, checkmate, checkmate_rounded, contracted, ordered, rotor

from dltune.schemas import profile as documents
from dltune.simulate.networks import Network
from dltune.simulate.step_graph import CSR, StepGraph, Tensors, peak
from dltune.systems.memory import cudnn
from dltune.systems.memory.model.layered import layer_step
from dltune.systems.memory.model.profiled_step import MeasuredStep, measured
from dltune.systems.memory.model.schedule import Step, levels, lives
from dltune.systems.memory.model.selection import BudgetTooSmall, Selection, exact, select

PARTS = (0.75, 0.5, 0.35, 0.25, 0.16)  # of the step's peak, as budgets
STAGES = 40  # of a chain, at most
BLOCKS = 24  # of Checkmate's graph, each way, at most
SMALL = 2000  # tensors of so small a part of the peak are held for nothing by rivals
NETWORKS = {
    "AlexNet, 200 pictures": (cudnn.alexnet(), 200),
    "VGG-16, 32 pictures": (cudnn.vgg_16(), 32),
    "ResNet-50, 32 pictures": (cudnn.resnet((3, 4, 6, 3)), 32),
}
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """`half`: how many nodes run before the way back."""

    name: str
    step: MeasuredStep
    peak: int
    half: int


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="*", type=Path)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for what is exact")
    parser.add_argument("--small", type=int, default=20, help="small graphs of each kind")
    return parser.parse_args()


def main() -> None:
    settings = parsed()
    for path in settings.profiles:
        profile = documents.load(path)
        step = measured(max(profile.steps, key=lambda one: one.share))
        large(case(path.stem, step), settings.limit)
    for name, (network, batch) in NETWORKS.items():
        large(case(name, layered(network, batch)), settings.limit)
    if settings.small:
        lot = random.Random(1)
        for name, made in (("chains", chain_of), ("by chance", by_chance)):
            small(name, [case(name, made(lot)) for _ in range(settings.small)], settings.limit)


def case(name: str, step: MeasuredStep) -> Case:
    level, _ = levels(
        lives(step.graph, [Step(node) for node in step.order], step.written), len(step.order)
    )
    # of a profile nobody tells where the way back begins
    half = len(step.order) // 2 if not step.written else int(np.argmax(level))
    return Case(name, step, int(level.max()), half)


def layered(network: Network, batch: int) -> MeasuredStep:
    """As cuDNN's layers; 100 GFLOP/s and 10 GB/s, gradients twice the operations where there are
    weights. What is overwritten makes that gradients are not computed again."""
    made = layer_step(network, batch)
    half, sizes = len(made.route), made.graph.tensors.bytes
    gives = np.bincount(made.graph.tensors.producer, sizes, len(made.graph))
    moved = gives + np.array([sizes[row].sum() for row in made.graph.reads])
    flops = np.zeros(2 * half)
    for node, number in enumerate(made.route):
        layer = network.layers[number]
        flops[node] = batch * network.forward(layer, training=True)
        flops[made.backward(node)] = flops[node] * (2 if layer.parameters else 1)
    seconds = np.maximum(flops / 100e9, moved / 10e9).tolist()
    return step_of(made.graph, seconds, [True] * half + [False] * half)


def given(step: MeasuredStep) -> tuple[Any, ...]:
    return step.graph, step.order, step.seconds, step.again


def large(one: Case, limit: float) -> None:
    step, total = one.step, sum(one.step.seconds)
    print(
        f"\n{one.name}: {len(step.graph)} nodes, {one.peak / MIB:.0f} MiB, {total:.3f} s of ops\n"
    )
    print("| budget MiB | greedy added | seconds | exact added | bound | gap of greedy "
          "| gap of exact | seconds |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for part in PARTS:
        budget = int(one.peak * part)
        try:
            quick, took = timed(lambda b=budget: select(*given(step), b, step.written))
            best, more = timed(lambda b=budget: exact(*given(step), b, step.written, limit))
        except BudgetTooSmall as error:
            print(f"| {budget / MIB:.1f} | needs {error.least / MIB:.1f} | | | | | | |")
            continue
        gap = (total + quick.seconds) / (total + best.bound) - 1
        print(f"| {budget / MIB:.1f} | {quick.seconds / total:.2%} | {took:.0f} "
              f"| {best.selection.seconds / total:.2%} | {best.bound / total:.2%} | {gap:.2%} "
              f"| {best.gap:.2%} | {more:.0f} |", flush=True)  # fmt: skip
    print("\n| rival | for MiB | peak MiB | added | seconds | greedy at its peak | saves |")
    print("|---|---|---|---|---|---|---|")
    for name, part, runs, took in rivals(one, limit):
        if runs is None:
            print(f"| {name} | {one.peak * part / MIB:.1f} | none found | | {took:.0f} | | |")
            continue
        needed, added = counted(step, runs)
        greedy = at_most(lambda b=needed: select(*given(step), b, step.written))
        text = "not met" if greedy is None else f"{greedy.seconds / total:.2%}"
        ratio = "" if greedy is None or not added else f"{1 - greedy.seconds / added:.0%}"
        print(f"| {name} | {one.peak * part / MIB:.1f} | {needed / MIB:.1f} | {added / total:.2%} "
              f"| {took:.0f} | {text} | {ratio} |", flush=True)  # fmt: skip


Found = tuple[str, float, list[Step] | None, float]


def rivals(one: Case, limit: float) -> Iterator[Found]:
    step = one.step
    count, half, small = len(step.order), one.half, one.peak // SMALL
    ends = cuts(step, 0, half, STAGES)
    fine = contracted(*given(step), [*ends, *range(half + 1, count + 1)], small)
    both = [*cuts(step, 0, half, BLOCKS), *cuts(step, half, count, BLOCKS)]
    coarse = contracted(*given(step), both, small)
    for part in PARTS:
        budget = int(one.peak * part)
        runs, took = timed(lambda b=budget: rotor(fine, len(ends), b))
        yield "rotor", part, runs and ordered(fine, runs, step.graph, step.again), took
    for part in PARTS:
        budget = int(one.peak * part)
        runs, took = timed(lambda b=budget: checkmate_rounded(coarse, b, limit))
        yield (
            "Checkmate, rounded",
            part,
            runs and ordered(coarse, runs, step.graph, step.again),
            took,
        )


def cuts(step: MeasuredStep, begin: int, end: int, count: int) -> list[int]:
    """Ends of parts: in each of as many equal ones the place over which the fewest bytes are
    carried to the rest of these."""
    crossing = np.zeros(len(step.order) + 1)
    position = {node: at for at, node in enumerate(step.order)}
    tensors = step.graph.tensors
    last: dict[int, int] = {}
    for at in range(begin, end):
        for tensor in step.graph.reads.lists[step.order[at]]:
            last[int(tensors.alias[tensor])] = at
    for tensor, at in last.items():
        crossing[max(begin, position[int(tensors.producer[tensor])]) + 1 : at + 1] += tensors.bytes[
            tensor
        ]
    if end - begin <= count:
        return list(range(begin + 1, end + 1))
    edges = np.linspace(begin, end, count + 1).astype(int)
    found = [a + 1 + int(np.argmin(crossing[a + 1 : b + 1])) for a, b in itertools.pairwise(edges)]
    return sorted({*found[:-1], end})


def small(name: str, cases: Sequence[Case], limit: float) -> None:
    """Added time over the step's, all budgets of all graphs together, at the rivals' peaks."""
    methods: dict[str, Callable[[Blocks, int, int], list[int] | None]] = {
        "Checkmate": lambda blocks, _, budget: checkmate(blocks, budget, limit),
        "Checkmate, rounded": lambda blocks, _, budget: checkmate_rounded(blocks, budget, limit),
    }
    if name == "chains":
        methods["rotor"] = lambda blocks, count, budget: rotor(blocks, count // 2, budget)
    print(f"\n{len(cases)} graphs of {len(cases[0].step.graph)} nodes, {name}\n")
    print("| rival | selections | added | seconds | greedy | seconds | exact | seconds | proven "
          "| greedy slower | exact slower |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for rival, method in methods.items():
        rows = []
        for one in cases:
            step, total = one.step, sum(one.step.seconds)
            count = len(step.order)
            blocks = contracted(*given(step), range(1, count + 1))
            for part in PARTS:
                runs, took = timed(
                    lambda m=method, b=blocks, c=count, p=part, o=one: m(b, c, int(o.peak * p))
                )
                if runs is None:
                    continue
                needed, added = counted(step, ordered(blocks, runs, step.graph, step.again))
                greedy, quick = timed(
                    lambda s=step, n=needed: at_most(lambda: select(*given(s), n, s.written))
                )
                best, more = timed(lambda s=step, n=needed: exact(*given(s), n, s.written, limit))
                fast = float("nan") if greedy is None else greedy.seconds
                rows.append((added / total, took, fast / total, quick,
                             best.selection.seconds / total, more, best.gap < 1e-5))  # fmt: skip
        met = [row for row in rows if row[2] == row[2]]
        means = [statistics.fmean(row[k] for row in met) for k in range(6)]
        print(f"| {rival} | {len(rows)} | {means[0]:.2%} | {means[1]:.3f} | {means[2]:.2%} "
              f"| {means[3]:.3f} | {means[4]:.2%} | {means[5]:.2f} | {sum(r[6] for r in rows)} "
              f"| {sum(not r[2] <= r[0] + 1e-9 for r in rows)} "
              f"| {sum(r[4] > r[0] + 1e-9 for r in rows)} |", flush=True)  # fmt: skip


def counted(step: MeasuredStep, runs: Sequence[Step]) -> tuple[int, float]:
    """Bytes that an order needs, and seconds of what runs again."""
    needed = peak(lives(step.graph, runs, step.written))[0]
    return needed, sum(step.seconds[one.node] for one in runs) - sum(step.seconds)


def at_most(do: Callable[[], Selection]) -> Selection | None:
    try:
        return do()
    except BudgetTooSmall:
        return None


def timed(do: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    return do(), time.perf_counter() - begin


def chain_of(lot: random.Random) -> MeasuredStep:
    """Seven layers and back, with results and times of very different sizes."""
    half = 7
    reads = [[], *([node - 1] for node in range(1, half))]
    reads += [sorted({half + k - 1, half - 1 - k}) for k in range(half)]
    return drawn(reads, lot)


def by_chance(lot: random.Random) -> MeasuredStep:
    reads = [
        sorted(lot.sample(range(max(0, n - 6), n), min(n, lot.randint(1, 3)))) for n in range(14)
    ]
    return drawn(reads, lot)


def drawn(reads: Sequence[Sequence[int]], lot: random.Random) -> MeasuredStep:
    count = len(reads)
    graph = StepGraph(
        [str(node) for node in range(count)],
        np.arange(count, dtype=np.int32),
        np.ones(count),
        Tensors.of([(n, 0) for n in range(count)], [lot.randint(1, 20) for _ in reads]),
        CSR.of(reads),
        CSR.of(() for _ in reads),
        np.zeros(count, np.bool_),
    )
    seconds = [float(lot.randint(1, 20)) for _ in reads]
    return step_of(graph, seconds, [True] * count)


def step_of(graph: StepGraph, seconds: Sequence[float], pure: Sequence[bool]) -> MeasuredStep:
    """Without variables."""
    return MeasuredStep(graph, range(len(graph)), seconds, pure, {}, {}, {}, ())


if __name__ == "__main__":
    main()
