"""Simulate background threads: checked against real ranks, then the thesis' networks on Summit.

    python scripts/research/sim_horovod.py check RECORD.json.gz...
    python scripts/research/sim_horovod.py thesis RECORD.json.gz [--steps 500]
    python scripts/research/sim_horovod.py trace OUT.json.gz

A record is made by scripts/release/record_horovod.py; its timeline lies beside it. The
method, frozen before anything was compared, is in docs/research/horovod-simulation.md.
"""

from __future__ import annotations

import argparse
import bisect
import dataclasses
import gzip
import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dltune.systems.ranks.allreduce.decide import REST
from dltune.systems.ranks.horovod import timeline
from dltune.systems.ranks.simulation.job import (
    GLOO,
    MPI,
    ORIGINAL,
    Job,
    Method,
    Network,
    Phase,
    Pool,
    Quantiles,
    constant,
    fused,
    measured,
    phases,
)
from dltune.systems.ranks.simulation.simulate import simulate, trace

SEED = 6
HERE = 1e-3  # seconds of a cycle where the records were made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check")
    check.add_argument("records", type=Path, nargs="+")
    thesis = commands.add_parser("thesis")
    thesis.add_argument("record", type=Path)
    thesis.add_argument("--steps", type=int, default=500)
    thesis.add_argument("--only", help="one network")
    thesis.add_argument("--most", type=int, default=24576, help="ranks")
    thesis.add_argument("--jitter", type=float, help="seconds per second; else fitted")
    draw = commands.add_parser("trace")
    draw.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "check":
        for path in arguments.records:
            compare(Record(path))
    elif arguments.command == "thesis":
        nets = [net for net in NETS if arguments.only in (None, net.name)]
        summit(Record(arguments.record), nets, arguments.steps, arguments.most, arguments.jitter)
    else:
        arguments.out.write_bytes(gzip.compress(cascade(), mtime=0))


# --- real ranks ---


class Record:
    """Two real ranks, as record_horovod.py found them."""

    def __init__(self, path: Path) -> None:
        found = json.loads(gzip.decompress(path.read_bytes()))
        self.path = path
        self.controller = found["controller"]
        self.plain, self.timed = found["plain"], found["timeline"]
        self.timeline = timeline.recording(path.with_suffix("").with_suffix(".timeline.json.gz"))

    def phase(self, name: str) -> list[dict[str, Any]]:
        """Of each rank, without a timeline."""
        return [rank["phases"][name] for rank in self.plain]

    def late(self, name: str) -> list[float]:
        """Seconds by which background threads overslept."""
        return [
            max(0.0, woke - begin - asked)
            for sleeps in self.sleeps(name)
            for begin, asked, woke in sleeps
        ]

    def sleeps(self, name: str) -> list[list[tuple[float, float, float]]]:
        """Of each rank's background thread: when it began to sleep, for how long, when it woke."""
        return [
            [(begin / 1e6, asked / 1e6, woke / 1e6) for begin, asked, woke in rank["sleeps"]]
            for rank in self.phase(name)
        ]

    def answers(self, name: str) -> list[float]:
        """How much later each rank's empty cycles ended than the last rank had come.

        A cycle that ended within the cycle time was followed by a sleep for what was left of it. If
        a thread did longer without sleep than that leaves, there was one cycle more, which took too
        long to be followed by one.
        """
        both = self.sleeps(name)
        found = []
        for own, other in (both, both[::-1]):
            moments = [woke for _, _, woke in other]
            for (_, _, woke), (begin, asked, _) in itertools.pairwise(own):
                start = begin - (HERE - asked)  # of the cycle that this sleep ended
                ends = [(start, begin)] if start > woke else [(woke, begin)]
                if start - woke > 1e-4:
                    ends.append((woke, start))
                for cycle, end in ends:
                    place = bisect.bisect_right(moments, end)
                    come = max(cycle, moments[place - 1] if place else cycle)
                    found.append(end - come)
        return found

    def batches(self) -> list[list[timeline.Batch]]:
        own = [b for b in self.timeline.batches if b.tensors[0].startswith("Distributed")]
        return timeline.steps(own)

    def background(self, name: str) -> float:
        """CPU share of the background thread, mean over ranks."""
        return statistics.mean(
            rank["phases"][name]["threads"][str(rank["background"])]
            / rank["phases"][name]["seconds"]
            for rank in self.plain
        )


def calibrated(record: Record) -> Job:
    """The job that was recorded, from its phases `rest` and `own` and what its tensors are."""
    own = record.phase("own")
    steps = sum(len(rank["steps"]) for rank in own)
    computed = sum(rank["cpu"] - sum(rank["threads"].values()) for rank in own) / steps
    walls = [seconds for rank in own for _, seconds in rank["steps"]]
    threads = max(1.0, computed * steps / sum(walls))
    mean = statistics.mean(walls)

    # when gradients become ready, as parts of a step's computing: rank 0's steps in the timeline
    named = sorted({t for step in record.batches() for batch in step for t in batch.tensors})
    began = record.timeline.began
    asked: dict[str, list[float]] = {name: [] for name in named}
    tails = []
    rows = [(at - began, seconds) for at, seconds in record.timed[0]["phases"]["both"]["steps"]]
    for (start, seconds), step in zip(rows, record.batches(), strict=False):
        tails.append(start + seconds - step[-1].end)
    starts = iter(rows)
    start, seconds = next(starts)
    for negotiation in record.timeline.negotiations:
        while negotiation.start > start + seconds:
            start, seconds = next(starts, (math.inf, 0.0))
        if negotiation.tensor in asked and negotiation.start >= start:
            asked[negotiation.tensor].append(negotiation.start - start)
    tail = max(0.0, statistics.median(tails))
    share = tail / statistics.median(seconds for _, seconds in rows)
    ready = [statistics.median(asked[name]) for name in named]
    last = max(ready)
    alone = computed / threads
    before = alone * share
    scaled = [moment / last * (alone - before) for moment in ready]

    # eager tensors have no names of their own; these two were sent in turn, with nothing else to do
    small, large = (
        min(b.transfer for b in record.timeline.batches if b.bytes == size and len(b.tensors) == 1)
        for size in (4, 4 << 20)
    )
    bound = len(record.plain[0]["cpus"]) == 1
    return Job(
        ranks=2,
        pool=Pool(1, 1) if bound else Pool(2, len(record.plain[0]["cpus"])),
        tensors=tuple(record.timeline.sizes[name] for name in named),
        phases=phases(scaled, threads=threads, before=before),
        network=Network(latency=small / 2, bandwidth=(4 << 20) / (large - small)),
        wake=measured(record.late("rest")),
        wake_busy=measured(record.late("own")),
        jitter=measured([wall / mean for wall in walls]),
        answer=measured(record.answers("rest")),
        answer_busy=measured(record.answers("own")),
        sync=0.0,  # in the answers
        cycle_time=HERE,
        waiting=MPI if record.controller == "mpi" else GLOO,
    )


def compare(record: Record) -> None:
    job = calibrated(record)
    outcome = simulate(job, ORIGINAL, steps=2000, seed=SEED)
    both = [seconds for name in ("both", "both_again") for seconds in _steps(record, name)]
    timed = [seconds for _, seconds in record.timed[0]["phases"]["both"]["steps"]]
    told = timeline.summary(record.timeline)
    batches = record.batches()
    cycles = [c for c in record.timeline.cycles if batches[0][0].start <= c <= batches[-1][-1].end]
    rate = len(cycles) / (batches[-1][-1].end - batches[0][0].start)
    sent = sum(len(step) for step in batches)
    print(f"\n{record.path.name}: {record.controller}, {job.pool}, computing alone", end=" ")
    print(f"{1e3 * sum(p.seconds for p in job.phases):.1f} ms on {job.phases[0].threads:.2f} cores")
    print(
        f"  oversleep: free core {job.wake.mean * 1e6:.0f} us, busy {job.wake_busy.mean * 1e6:.0f}"
    )
    print(f"  a step in the timeline's run {1e3 * statistics.mean(timed):.1f} ms")
    print(f"  batches of the whole timeline {told.batches}, cached {told.cached}")
    print(f"  {'':28}{'predicted':>10} {'measured':>10} {'error':>8}")
    for name, predicted, found in (
        ("step, mean ms", 1e3 * outcome.seconds, 1e3 * statistics.mean(both)),
        ("step, median ms", 1e3 * statistics.median(outcome.steps), 1e3 * statistics.median(both)),
        (
            "step over computing alone",
            outcome.seconds / _own(record),
            statistics.mean(both) / _own(record),
        ),
        ("cycles per second", outcome.cycle_rate, rate),
        ("empty share", outcome.empty_share, 1 - sent / len(cycles) if cycles else math.nan),
        ("batches per step", outcome.batches_per_step, sent / len(batches)),
        ("background CPU share", outcome.background, record.background("both")),
    ):
        print(f"  {name:28}{predicted:10.3f} {found:10.3f} {predicted / found - 1:+8.1%}")


def _steps(record: Record, name: str) -> Iterator[float]:
    for rank in record.phase(name):
        yield from (seconds for _, seconds in rank["steps"])


def _own(record: Record) -> float:
    return statistics.mean(_steps(record, "own"))


# --- the thesis' networks on Summit ---

RANKS = (6, 96, 768, 3072, 12288, 24576)
NODE = 6
CORES = 7.0
CYCLE, FUSION = 5e-3, 64 << 20  # Horovod 0.16.3
SCALING_LOSS = 3.3  # Fig. 6.5: linear scaling of computing over throughput, at 24,576 ranks
TESTS = 1e-4  # seconds between NBCS' tests
GS, NBCS = Method("global-sleep", agree_every=1), Method("non-blocking", between_tests=TESTS)
# published: TensorFlow's own benchmarks, Tesla P100, batch 32, synthetic, images/s; the factor of a
# V100 with mixed precision and XLA (NVIDIA's, for this framework)
RESNET50_P100, V100 = 195.0, 3.0
RESNET50 = 32 / (RESNET50_P100 * V100)


@dataclass(frozen=True)
class Net:
    """`relative`: computing over ResNet-50's. `window`: the CIS window's part of it (section
    6.4.2). `groups`: gradients (how many, millions of parameters in all of them). `best`: Fig.
    6.20's gain of TOPO, percent."""

    name: str
    relative: float
    window: float
    groups: tuple[tuple[int, float], ...]
    best: str


NETS = (
    Net("ResNet18", 47.07 / 153.9, 0.46, ((62, 11.7),), "5 to 21"),
    Net("ResNet34", 79.70 / 153.9, 0.55, ((110, 21.8),), "5 to 21"),
    Net("ResNet50", 1.0, 0.48, ((161, 25.6),), "up to 21"),
    Net("ResNet101", 235.33 / 153.9, 0.30, ((314, 44.5),), "5 to 21"),
    Net("ResNet152", 195 / 82.7, 0.23, ((467, 60.2),), "5 to 21"),
    Net("AlexNet", 23.18 / 153.9, 0.0, ((10, 2.5), (1, 37.7), (1, 16.8), (4, 4.1)), "-6"),
    Net("GoogLeNet", 195 / 128 * 1.5 / 5.7, 0.56, ((116, 6.8),), "25, up to 35"),
    Net("Inception-v3", 195 / 128, 0.42, ((284, 23.8),), "10 to 18"),
    Net("VGG16", 195 / 144, 0.32, ((26, 14.7), (1, 102.8), (1, 16.8), (4, 4.1)), "2 to 6"),
)


def summit_job(net: Net, ranks: int, jitter: float, record: Record) -> Job:
    seconds = RESNET50 * net.relative
    tensors = tuple(
        int(4e6 * millions / count) for count, millions in net.groups for _ in range(count)
    )
    window = net.window * seconds
    return Job(
        ranks=ranks,
        pool=Pool(1, CORES),
        tensors=tensors,
        # scheduling beside the input pipeline; then the device alone. XLA: no overlap, all
        # gradients are there at the end.
        phases=(Phase(window, 1.0), Phase(seconds - window, 0.0, tuple(range(len(tensors))))),
        network=Network(
            latency=5e-6,
            bandwidth=12.5e9 if ranks > NODE else 50e9,
            algorithm="tree",
            copy=300e9,
            fixed=50e-6,
        ),
        wake=measured(record.late("rest")),
        wake_busy=measured(record.late("own")),
        cycle_time=CYCLE,
        fusion_threshold=FUSION,
        jitter=exponential(jitter),
        input_seconds=window,
        input_threads=CORES,
        waiting=MPI,
        offloaded=True,
        sync=2e-6 * (ranks - 1).bit_length(),
    )


def exponential(mean: float) -> Quantiles:
    """1 and an exponential excess, cut where one of ten million is."""
    points = [(1 - 10.0**-k, 1 + mean * k * math.log(10)) for k in range(8)]
    # between decades it is not linear: halves of them, too
    halves = [(1 - 10 ** -(k + 0.5), 1 + mean * (k + 0.5) * math.log(10)) for k in range(7)]
    return Quantiles((*sorted(points + halves), (1.0, 1 + mean * 7.5 * math.log(10))))


def summit_methods(job: Job) -> tuple[Method, ...]:
    bins = fused(job)
    scp = Method("core-partition", reserved=1.0, input_cores=CORES - 2)
    return (
        ORIGINAL,
        GS,
        NBCS,
        scp,
        Method("ordered-bins", bins=bins, synchronized=False),
        dataclasses.replace(scp, name="core-partition+ordered-bins", bins=bins, synchronized=False),
        Method("rest", rest=REST),
        Method("non-blocking+rest", between_tests=TESTS, rest=REST),
    )


def fitted(record: Record, most: int) -> float:
    """The one free number: how uneven computing is, by the original ResNet-50's scaling loss."""
    net = NETS[2]

    def loss(jitter: float) -> float:
        job = summit_job(net, most, jitter, record)
        return simulate(job, ORIGINAL, steps=60, seed=SEED).seconds / RESNET50

    low, high = 0.0, 1.0
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < SCALING_LOSS else (low, middle)
    return (low + high) / 2


def summit(
    record: Record, nets: Sequence[Net], steps: int, most: int, jitter: float | None
) -> None:
    ranks = [count for count in RANKS if count <= most]
    if jitter is None:
        jitter = fitted(record, most)
    print(f"jitter {jitter:.4f}: fitted to a loss of {SCALING_LOSS} at {most} ranks")
    for net in nets:
        print(
            f"\n{net.name}: {1e3 * RESNET50 * net.relative:.1f} ms computing, thesis {net.best} %"
        )
        best: dict[str, float] = {}
        for count in ranks:
            job = summit_job(net, count, jitter, record)
            began = time.monotonic()
            cells = []
            base = 0.0
            for method in summit_methods(job):
                if net.name != "ResNet50" and method.name not in ("original", "ordered-bins"):
                    continue
                outcome = simulate(job, method, steps=steps, seed=SEED, warmup=10)
                base = base or outcome.seconds
                gain = base / outcome.seconds - 1
                best[method.name] = max(best.get(method.name, -math.inf), gain)
                cells.append(
                    f"{method.name} {1e3 * outcome.seconds:.1f} ms {gain:+.1%}"
                    f" bg {outcome.background:.0%} exposed {outcome.exposed / outcome.seconds:.0%}"
                )
            print(f"  {count:6} {'; '.join(cells)} ({time.monotonic() - began:.1f} s)", flush=True)
        print("  best: " + ", ".join(f"{name} {gain:+.1%}" for name, gain in best.items()))


# --- Fig. 6.9 ---


def cascade() -> bytes:
    """One background thread oversleeps once; the others spin from then on, and GS ends it."""
    rarely = Quantiles(((0.0, 0.0), (0.985, 50e-6), (1.0, 12e-3)))
    job = Job(
        ranks=4,
        pool=Pool(1, CORES),
        tensors=(1 << 20,) * 8,
        phases=(Phase(0.026, 1.0), Phase(0.029, 0.0, tuple(range(8)))),
        network=Network(5e-6, 12.5e9),
        wake=rarely,
        wake_busy=rarely,
        cycle_time=CYCLE,
        input_seconds=0.026,
        input_threads=CORES,
        jitter=constant(1.0),
        offloaded=True,
    )
    methods = (ORIGINAL, GS, NBCS, Method("ordered-bins", bins=fused(job), synchronized=False))
    return trace(
        {m.name: simulate(job, m, steps=6, seed=SEED, warmup=0, drawn=4).slices for m in methods}
    )


if __name__ == "__main__":
    main()
