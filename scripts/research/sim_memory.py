"""SuperNeurons' tables and figures of memory, simulated, each beside what the paper has.

    python scripts/research/sim_memory.py [--figures 2,3,4,5,11,12,14,ours,links,knl]
    python scripts/research/sim_memory.py --figures job --profile PROFILE

What is simulated, and from which published facts, is in docs/research/memory-simulation.md.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from dltune.schemas import profile
from dltune.schemas.machine import Tier
from dltune.simulate import step_graph
from dltune.simulate.networks import Device, Network
from dltune.system import topology
from dltune.systems.memory import cudnn
from dltune.systems.memory.cudnn import inception_v4
from dltune.systems.memory.model import layered
from dltune.systems.memory.model.allocator import events, replayed
from dltune.systems.memory.model.layered import (
    LayerStep,
    Strategy,
    Work,
    layer_step,
    provisioned,
    schedule_recomputation,
)
from dltune.systems.memory.model.profiled_step import MeasuredStep, measured
from dltune.systems.memory.model.schedule import Accesses, Step, accesses, lives
from dltune.systems.memory.offload import (
    GIB,
    GPUS,
    HOST,
    PEER,
    REMOTE,
    CacheTooSmall,
    Overlapped,
    Swap,
    Tiers,
    cached,
    held,
    hidden,
    overlapped,
    placed,
    prefetched,
    published,
    traffic,
    with_file,
)

MIB = 1 << 20
# single precision and memory, by NVIDIA's specifications: 2880 cores at 745 MHz (BD-06902-001),
# 3840 at 1582 MHz
K40C = Device(flops=4.29e12, bandwidth=288e9)
TITAN_XP = Device(flops=12.15e12, bandwidth=547.7e9)
# 68 cores of 1.4 GHz and 64 operations a cycle; about what STREAM comes to in MCDRAM
KNL = Device(flops=6.09e12, bandwidth=450e9)
TIERS = GPUS["k40c"]
SPEEDS = (250, 500, 1000, 2000)  # MB/s of files
ECC = TIERS.near * 15 // 16  # as the card ships, with error correction (BD-06902-001)
# of parameters: themselves, gradients, and, as in the authors' programs, momenta
HELD = 3

NETWORKS: dict[str, Callable[[], Network]] = {
    "AlexNet": cudnn.alexnet,
    "VGG16": cudnn.vgg_16,
    "InceptionV4": inception_v4,
    "ResNet50": functools.partial(cudnn.resnet, (3, 4, 6, 3)),
    "ResNet101": functools.partial(cudnn.resnet, (3, 4, 23, 3)),
    "ResNet152": functools.partial(cudnn.resnet, (3, 8, 36, 3)),
}
# Table 2: images a second with cudaMalloc and with the pool; batches of 128 and 16
RATES = {
    "AlexNet": (128, 359.4, 401.6),
    "VGG16": (16, 12.1, 14.4),
    "InceptionV4": (16, 6.77, 10.0),
    "ResNet50": (16, 21.5, 32.9),
    "ResNet101": (16, 11.3, 18.95),
    "ResNet152": (16, 7.46, 13.2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", default=",".join(FIGURES))
    parser.add_argument("--profile", type=Path, help="of a job, for the figure `job`")
    arguments = parser.parse_args()
    figures = arguments.figures.split(",")
    if "job" in figures and not arguments.profile:
        parser.error("the figure `job` needs --profile")
    for name in figures:
        began = time.perf_counter()
        if name == "job":
            job(arguments.profile)
        else:
            FIGURES[name]()
        print(f"\n({time.perf_counter() - began:.0f} s)\n", flush=True)


# --- what is simulated ---


@dataclass(frozen=True, eq=False)
class Case:
    """A step in an order, with what it touches."""

    step: LayerStep
    steps: Sequence[Step]
    uses: Accesses

    @property
    def parameters(self) -> int:
        """Bytes that stay for all that is learned."""
        return HELD * sum(one.bytes for one in self.step.network.parameters)

    def published(self) -> list[Swap]:
        return published(self.step, self.steps, self.uses)

    def times(self, device: Device, near: int, swaps: Sequence[Swap]) -> list[Work]:
        """With workspaces in what is left of so many bytes."""
        free = near - self.parameters - held(self.uses, swaps)
        return provisioned(self.step, self.steps, device, free.tolist())

    def run(self, device: Device, near: int, swaps: Sequence[Swap]) -> Overlapped:
        seconds = [work.seconds for work in self.times(device, near, swaps)]
        return overlapped(self.uses, seconds, swaps, Tiers(near, TIERS.far))


@functools.lru_cache(8)
def case(name: str, batch: int, strategy: Strategy) -> Case:
    return made(NETWORKS[name](), batch, strategy)


def made(network: Network, batch: int, strategy: Strategy) -> Case:
    step = layer_step(network, batch)
    steps = schedule_recomputation(step, strategy, offload=True)
    return Case(step, steps, accesses(step.graph, steps))


@functools.cache
def share(name: str) -> float:
    """The part of the roofline at which a K40c has the rate of Table 2 with the pool: each layer is
    run with the workspace that it has room for, and nothing is moved."""
    batch, _, rate = RATES[name]
    return case(name, batch, "keep").run(K40C, TIERS.near, []).seconds * rate / batch


def on(device: Device, name: str) -> Device:
    return replace(device, share=share(name))


# --- Table 2: what allocation costs ---


def table_2() -> None:
    print("Table 2: what cudaMalloc and cudaFree cost, from the paper's rates and our counts\n")
    head("network", "allocations", "with cudaMalloc", "pool", "speed-up", "ms an allocation",
        "pool over peak")  # fmt: skip
    for name, (batch, plain, pool) in RATES.items():
        count = int((case(name, batch, "keep").uses.lives.bytes > 0).sum())
        cost = batch * (1 / plain - 1 / pool) / count
        waste = replayed(case(name, batch, "keep").uses.lives).waste
        cells = f"{pool / plain:.2f}", f"{1e3 * cost:.2f}", f"{waste:.1%}"
        row(name, count, plain, pool, *cells)


# --- Table 3: traffic with the tensor cache ---

TABLE_3 = {256: 2.56, 384: 3.72, 512: 4.88, 640: 6.03, 896: 8.35, 1024: 9.50}


def table_3() -> None:
    print("Table 3: GB copied in a step of AlexNet; with the cache the paper has 0, at 1024 0.88\n")
    network = NETWORKS["AlexNet"]()
    learned = sum(one.bytes for one in network.parameters)
    conv = 4 * sum(layer.size for layer in network.layers if layer.kind == "conv")
    head("batch", "paper", "3 conv + 2 batch + parameters", "conv out and in",
        "cache of live tensors", "their room, GiB", "cache of all tensors",
        "their room, GiB", "what moves")  # fmt: skip
    for batch, paper in TABLE_3.items():
        found = case("AlexNet", batch, "keep")
        rule = (3 * conv + 2 * 4 * network.layers[0].size) * batch + learned
        room = ECC - found.parameters
        every = unfreed(found)
        moved = cached(every, room)
        names = [
            "the batch" if every.lives.tensor[swap.block] < 0
            else found.step.graph.names[every.at[swap.block][0]] for swap in moved
        ]  # fmt: skip
        row(
            batch,
            paper,
            f"{rule / 1e9:.2f}",
            f"{traffic(found.uses, found.published()) / 1e9:.2f}",
            f"{traffic(found.uses, cached(found.uses, room)) / 1e9:.2f}",
            f"{(int(found.uses.levels.max()) + found.parameters) / GIB:.2f}",
            f"{traffic(every, moved) / 1e9:.2f}",
            f"{(found.step.baseline + found.parameters) / GIB:.2f}",
            ", ".join(names),
        )


def unfreed(found: Case) -> Accesses:
    """Nothing is given back before the step ends, and the batch is a tensor, too."""
    own, last = found.uses.lives, len(found.steps) - 1
    lives = step_graph.Lives(
        np.append(own.tensor, -1).astype(np.int32),
        np.append(own.begin, 0),
        np.full(len(own.begin) + 1, last + 1),
        np.append(own.bytes, found.step.input),
    )
    batch = len(own.begin)
    tensors = [list(row) for row in found.uses.tensors]
    tensors[0].append((-1, batch))
    tensors[last].append((-1, batch))
    return Accesses(lives, tensors)


# --- Tables 4 and 5: how deep, how wide ---

# what each keeps: by bytes of a step beside what stays for the parameters
POLICIES: dict[str, Callable[[LayerStep], int]] = {
    "each tensor for the step": lambda step: step.baseline,
    "forward results alone": lambda step: step.input + int(
        sum(step.graph.tensors.bytes[one] for row in step.given.values() for one in row)
    ),
    "liveness": lambda step: _peak(step, "keep", offload=False),
    "liveness, recomputation": lambda step: _peak(step, "speed", offload=False),
    "liveness, offloading": lambda step: _peak(step, "keep", offload=True),
    "all three": lambda step: _peak(step, "cost", offload=True),
    "a join each, one layer": lambda step: _joins(step) + accesses(
        step.graph, schedule_recomputation(step, "cost", offload=True)
    ).largest,
    "tensor cache": lambda step: accesses(
        step.graph, schedule_recomputation(step, "cost", offload=True)
    ).largest,
}  # fmt: skip
TABLE_4 = "Caffe 148, MXNet 480, Torch 152, TensorFlow 592, SuperNeurons 1920"
TABLE_5 = {
    "AlexNet": (768, 768, 1024, 1408, 1792),
    "VGG16": (48, 64, 48, 80, 224),
    "InceptionV4": (16, None, None, 64, 240),
    "ResNet50": (24, 80, 32, 128, 384),
    "ResNet101": (16, 48, 16, 80, 256),
    "ResNet152": (16, 32, 16, 48, 176),
}


def _peak(step: LayerStep, strategy: Strategy, *, offload: bool) -> int:
    found = step_graph.peak(
        lives(step.graph, schedule_recomputation(step, strategy, offload=offload))
    )[0]
    return found + step.input


def _joins(step: LayerStep) -> int:
    """What sums and concatenations give out."""
    layers = step.network.layers
    return sum(
        int(step.graph.tensors.bytes[step.given[number][0]])
        for number in step.route
        if layers[number].kind in ("add", "concat")
    )


def deep(count: int, batch: int) -> LayerStep:
    return layer_step(cudnn.resnet((6, 32, count, 6)), batch)


def table_4() -> None:
    print("Table 4: the deepest ResNet on 12 GiB, 3 (6 + 32 + n + 6) + 2\n")
    print(f"paper, batch 16: {TABLE_4}; batch 1: SuperNeurons 2500 (n = 788)\n")
    head("what is kept", "n, batch 16", "depth", "without momenta", "n, batch 1", "depth")
    for name, needs in POLICIES.items():
        found = [
            deepest(needs, batch, kept) for batch, kept in ((16, HELD), (16, HELD - 1), (1, HELD))
        ]
        depth = [3 * (44 + n) + 2 if n else "none" for n in found]
        row(name, found[0], depth[0], depth[1], found[2], depth[2])


def deepest(needs: Callable[[LayerStep], int], batch: int, kept: int) -> int:
    """Bytes grow evenly with the depth, from some depth on: by two points, then checked."""

    def bytes(count: int) -> int:
        step = deep(count, batch)
        return needs(step) + kept * sum(one.bytes for one in step.network.parameters)

    low, high = bytes(6), bytes(106)
    guess = max(0, round(6 + 100 * (TIERS.near - low) / (high - low)))
    while guess and bytes(guess) > TIERS.near:
        guess -= 1
    while bytes(guess + 1) <= TIERS.near:
        guess += 1
    return guess


def table_5() -> None:
    print("Table 5: the largest batch on 12 GiB\n")
    head("network", *POLICIES, "paper: Caffe", "MXNet", "Torch", "TensorFlow", "SuperNeurons")
    for name, paper in TABLE_5.items():
        step = layer_step(NETWORKS[name](), 1)
        room = TIERS.near - HELD * sum(one.bytes for one in step.network.parameters)
        row(name, *(room // needs(step) for needs in POLICIES.values()), *paper)


# --- Fig. 11: what the cache saves ---


def figure_11() -> None:
    print("Figure 11: speed without the tensor cache over speed with it, K40c, then Titan Xp; the "
          "paper: down to 0.667, less in linear networks\n")  # fmt: skip
    head("network", "batch", "share", *("with, img/s", "without", "ratio", "no overlap") * 2)
    for name in NETWORKS:
        batch = 128 if name == "AlexNet" else 32
        found = case(name, batch, "keep")
        cells: list[object] = []
        for device in (on(K40C, name), on(TITAN_XP, name)):
            swaps = found.published()
            way = found.run(device, TIERS.near, cached(found.uses, TIERS.near - found.parameters))
            without = found.run(device, TIERS.near, swaps)
            serial = without.computing + without.traffic / HOST.bandwidth
            cells += [
                f"{batch / way.seconds:.1f}",
                f"{batch / without.seconds:.1f}",
                f"{way.seconds / without.seconds:.3f}",
                f"{way.seconds / serial:.3f}",
            ]
        row(name, batch, f"{share(name):.2f}", *cells)


# --- Fig. 12: workspaces ---


def figure_12() -> None:
    print("Figure 12: AlexNet's workspaces in pools, K40c; the paper: 203 img/s where they are "
          "short, 240 with more\n")  # fmt: skip
    head("pool", "batch", "kept", "img/s", "workspaces, MiB", "at best MiB")
    for strategy in ("keep", "cost"):
        for gib, batch in ((3, 100), (3, 300), (5, 300)):
            found = case("AlexNet", batch, strategy)
            try:
                swaps = cached(found.uses, gib * GIB - found.parameters)
            except CacheTooSmall as error:
                row(f"{gib} GiB", batch, strategy, "", str(error), "")
                continue
            device = on(K40C, "AlexNet")
            works = found.times(device, gib * GIB, swaps)
            best = found.times(device, 1 << 50, swaps)
            rate = batch / found.run(device, gib * GIB, swaps).seconds
            row(f"{gib} GiB", batch, strategy, f"{rate:.0f}", _convs(works), _convs(best))


def _convs(works: Sequence[Work]) -> str:
    return " ".join(f"{work.workspace / MIB:.0f}" for work in works if work.passes)


# --- Fig. 14: end to end ---


def figure_14() -> None:
    print("Figure 14: img/s on a Titan Xp with 12 GiB by batch; the cache on demand, and asking")
    print("ahead; ours; with endless memory")
    print("\nthe paper: slowly slower as batches grow, until one layer fits\n")
    head("network", "batch", "cache", "asking ahead", "copied GB", "ours", "copied GB", "endless")
    for name, paper in TABLE_5.items():
        most = max(filter(None, paper))
        device = on(TITAN_XP, name)
        for batch in sorted({max(8, most * part // 16) for part in (1, 2, 4, 8, 12, 16)}):
            found = case(name, batch, "cost")
            room = TIERS.near - found.parameters
            lru = cached(found.uses, room)
            plain = [work.seconds for work in found.times(device, TIERS.near, lru)]
            kept = case(name, batch, "keep")
            best = sum(work.seconds for work in kept.times(device, 1 << 50, []))
            ahead = prefetched(found.uses, plain, room, HOST, lru)
            runs = [found.run(device, TIERS.near, swaps) for swaps in (lru, ahead)]
            runs.append(planned(name, batch, device))
            rates = [f"{batch / run.seconds:.1f}" for run in runs]
            gb = [f"{run.traffic / 1e9:.2f}" for run in runs]
            row(name, batch, *rates[:2], gb[1], rates[2], gb[2], f"{batch / best:.1f}")


def planned(name: str, batch: int, device: Device) -> Overlapped:
    """Ours, with as much computed again as pays."""
    runs = []
    for strategy in ("keep", "speed", "cost"):
        found = case(name, batch, strategy)
        room = TIERS.near - found.parameters
        swaps = cached(found.uses, room)
        plain = [work.seconds for work in found.times(device, TIERS.near, swaps)]
        swaps = hidden(found.uses, plain, room, HOST)
        runs.append(found.run(device, TIERS.near, swaps))
    return min(runs, key=lambda run: run.seconds)


# --- ours beside the published ways, at the same peak ---


def ours() -> None:
    print("Milliseconds that a K40c waits for copies, at the peak that offloading reaches\n")
    head("network", "batch", "computing, ms", "peak before, MiB", "peak, MiB", "published",
        "copied GB", "cache", "asking ahead", "copied GB", "ours", "copied GB",
        "MiB for 1 % more")  # fmt: skip
    for name in NETWORKS:
        batch = 128 if name == "AlexNet" else 32
        found = case(name, batch, "keep")
        device = on(K40C, name)
        plain = [work.seconds for work in found.times(device, TIERS.near, [])]
        swaps = found.published()
        peak = int(held(found.uses, swaps).max())
        lru = cached(found.uses, peak)
        ahead = prefetched(found.uses, plain, peak, HOST, lru)
        own = hidden(found.uses, plain, peak, HOST)
        runs = [overlapped(found.uses, plain, way, TIERS) for way in (swaps, lru, ahead, own)]
        stalls = [f"{1e3 * run.stall:.1f}" for run in runs]
        gb = [f"{run.traffic / 1e9:.2f}" for run in runs]
        cells = [stalls[0], gb[0], *stalls[1:3], gb[2], stalls[3], gb[3]]
        before = found.uses.levels.max() / MIB
        needed = f"{least(found.uses, plain, HOST) / MIB:.0f}"
        sizes = f"{before:.0f}", f"{peak / MIB:.0f}"
        row(name, batch, f"{1e3 * sum(plain):.0f}", *sizes, *cells, needed)


def least(uses: Accesses, seconds: Sequence[float], tier: Tier) -> int:
    """Bytes with which ours takes at most 1 % longer than with all that is asked for."""
    low, high = uses.largest, int(uses.levels.max())
    while high - low > MIB:
        middle = (low + high) // 2
        swaps = hidden(uses, seconds, middle, tier)
        run = overlapped(uses, seconds, swaps, Tiers(middle, (tier,)))
        low, high = (low, middle) if run.stall <= 0.01 * run.computing else (middle, high)
    return high


# --- the links of section 3.3.2 ---


def links() -> None:
    print("ResNet50 on a Titan Xp with 12 GiB, batch 384, what leaves in other memory: img/s\n")
    head("far tiers", "img/s", "GB in each")
    found, device = case("ResNet50", 384, "cost"), on(TITAN_XP, "ResNet50")
    room = TIERS.near - found.parameters
    plain = [w.seconds for w in found.times(device, TIERS.near, cached(found.uses, room))]
    for far in ((REMOTE,), (HOST,), (PEER,), (PEER, HOST), (PEER, HOST, REMOTE)):
        tiers = Tiers(TIERS.near, tuple(replaced(tier, len(far)) for tier in far))
        swaps = placed(found.uses, hidden(found.uses, plain, room, far[0]), tiers)
        run = overlapped(found.uses, plain, swaps, tiers)
        gb = [
            traffic(found.uses, [one for one in swaps if one.tier == k]) / 2e9
            for k in range(len(far))
        ]
        names = " + ".join(tier.name for tier in far)
        row(names, f"{384 / run.seconds:.1f}", " + ".join(f"{one:.1f}" for one in gb))


def replaced(tier: Tier, others: int) -> Tier:
    """One that is alone is large enough."""
    return tier if others > 1 else msgspec.structs.replace(tier, bytes=HOST.bytes)


# --- MCDRAM and DDR4 ---


def knl() -> None:
    machine = topology.builtin_machine("knl-7250")
    tiers = Tiers.of(machine)
    print("ResNet50 on a Xeon Phi 7250, tensors in MCDRAM and DDR4: % more time at shares of its")
    print("peaks, ours, and the cache\n")
    shares = (0.1, 0.3, 0.5, 1.0)
    head("batch", "GiB at the peak", "GB copied", *shares, *(f"cache: {share}" for share in shares))
    for batch in (64, 128, 256, 512):
        found = case("ResNet50", batch, "keep")
        room = tiers.near - found.parameters
        lru = cached(found.uses, room)
        ours, cache = [], []
        for share in shares:
            seconds = layered.layer_seconds(found.step, replace(KNL, share=share))
            plain = seconds[[one.node for one in found.steps]].tolist()
            own = hidden(found.uses, plain, room, tiers.far[0])
            for cells, way in ((ours, own), (cache, lru)):
                run = overlapped(found.uses, plain, way, tiers)
                cells.append(f"{100 * run.stall / run.computing:.1f}")
        peak = (int(found.uses.levels.max()) + found.parameters) / GIB
        row(batch, f"{peak:.1f}", f"{traffic(found.uses, lru) / 1e9:.1f}", *ours, *cache)


# --- a real job ---


def job(path: Path) -> None:
    """Its tensors through the pool, and through the C library's allocator, touched as a kernel
    would: each page once."""
    for step in profile.load(path).steps:
        graph = step_graph.acyclic(step)
        when = [
            (-1, -1) if node.start is None or node.end is None
            else (round(1e9 * node.start), round(1e9 * node.end)) for node in step.nodes
        ]  # fmt: skip
        start, end = (np.array(column, np.int64) for column in zip(*when, strict=True))
        found = step_graph.lives(graph, start, end)
        made = replayed(found)
        print(f"{len(step.nodes)} nodes, {made.allocations} allocations a step of "
              f"{1e3 * step.wall.median:.0f} ms")  # fmt: skip
        print(f"live bytes at the peak {made.peak / MIB:.2f} MiB, in whole blocks "
              f"{made.rounded / MIB:.2f}, the pool ends at {made.top / MIB:.2f}: "
              f"{made.waste:.1%} more; at most {made.longest} free pieces")  # fmt: skip
        sequence = events(found)
        pool = timed(lambda f=found: replayed(f))
        print(f"pool, in Python: {1e6 * pool / made.allocations:.2f} us an allocation and release")
        for touch in (False, True):
            plain = malloc(sequence, touch)
            reused = preallocated(sequence, made.addresses, made.top, touch)
            print(f"{'each byte written' if touch else 'nothing written'}: malloc and free "
                  f"{1e3 * plain:.2f} ms a step, one block {1e3 * reused:.2f} ms")  # fmt: skip

        by_file(measured(step))


def by_file(job: MeasuredStep) -> None:
    """Its ops one after the other in the order in which they began, part of its memory in a
    file."""
    uses = accesses(job.graph, [Step(node) for node in job.order], job.written)
    seconds = [job.seconds[node] for node in job.order]
    peak = int(uses.levels.max())
    print(f"\none op after the other: {sum(seconds):.2f} s, {peak / MIB:.1f} MiB")
    print("% more time with a file of so many MB/s, ours, and the cache\n")
    head("memory, MiB", "tensors moved", "MB copied", *SPEEDS, "cache: MB copied", *SPEEDS)
    for part in (0.75, 0.5, 0.35, 0.25):
        ours: list[object] = []
        cache: list[object] = []
        for speed in SPEEDS:
            tiers = with_file(int(part * peak), 1 << 40, speed * 1e6)
            own = hidden(uses, seconds, tiers.near, tiers.far[0])
            lru = cached(uses, tiers.near)
            for cells, way in ((ours, own), (cache, lru)):
                run = overlapped(uses, seconds, way, tiers)
                cells.append(f"{100 * run.stall / run.computing:.1f}")
        copied = [f"{traffic(uses, way) / 1e6:.0f}" for way in (own, lru)]
        row(f"{part * peak / MIB:.0f}", len(own), copied[0], *ours, copied[1], *cache)
    tiers = [with_file(0, 1 << 40, speed * 1e6).far[0] for speed in SPEEDS]
    needed = [f"{least(uses, seconds, tier) / MIB:.0f}" for tier in tiers]
    print(f"\nMiB for 1 % more time: {', '.join(needed)}")


def timed(work: Callable[[], object]) -> float:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return sorted(took)[2]


def malloc(sequence: Sequence[tuple[int, int | None]], touch: bool) -> float:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    memset = ctypes.memset

    def once() -> None:
        where: dict[int, int] = {}
        for number, bytes in sequence:
            if bytes is None:
                libc.free(where.pop(number))
            else:
                where[number] = libc.malloc(bytes)
                if touch:
                    memset(where[number], 0, bytes)

    return timed(once)


def preallocated(
    sequence: Sequence[tuple[int, int | None]], places: Sequence[int], top: int, touch: bool
) -> float:
    whole = mmap.mmap(-1, max(1, top))
    base = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    memset = ctypes.memset

    def once() -> None:
        for number, bytes in sequence:
            if bytes is not None and touch:
                memset(base + places[number], 0, bytes)

    once()
    return timed(once)


def head(*cells: object) -> None:
    row(*cells)
    print("|---" * len(cells) + "|")


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


FIGURES: dict[str, Callable[[], None]] = {
    "2": table_2,
    "3": table_3,
    "4": table_4,
    "5": table_5,
    "11": figure_11,
    "12": figure_12,
    "14": figure_14,
    "ours": ours,
    "links": links,
    "knl": knl,
}

if __name__ == "__main__":
    main()
