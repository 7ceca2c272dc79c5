"""The paper's figures on the order of transfers, simulated: ten published networks on clusters.

    python scripts/research/simulate_transfers.py [--figures 7,9,bandwidth] [--bandwidth 10]

docs/explanation/plan-transfers.md says what is simulated; docs/research/claims/transfers.md
compares TicTac's claims.

Op times are those of a roofline, and a part of it that training with TensorFlow is known to reach.
GPU workers: half an NVIDIA K80 (board specification BD-07317-001: 8.74 Tflop/s with boost and 480
GB/s for both halves), and for each family of networks what TensorFlow's benchmarks of May 2017 say
of one (Google Compute Engine, synthetic data, images a second). CPU workers: TicTac names 32 cores
and 1 Gbit/s, no model; taken as those of a Xeon E5-2686 v4 (2.3 GHz, 32 operations a cycle with
AVX2, four channels of DDR4-2400 for 18 cores), for which TensorFlow's performance guide of 2017
tells of Inception v3's training on 36 cores, with AVX as in TensorFlow's own packages.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dltune.profile.processes import Receive, servers_of
from dltune.simulate.architectures import NETWORKS
from dltune.simulate.networks import Device, Network, NetworkStep, inference, seconds, training
from dltune.simulate.overlap import Bounds, tac, tic
from dltune.systems.transfers.forecast import BATCHES, RATES, Forecast, Replica, forecast, shared
from dltune.systems.transfers.section import GIGABIT

Mode = Literal["inference", "training"]
MODES: tuple[Mode, ...] = ("inference", "training")
ORDERS = {"tic": tic, "tac": tac}

K80 = Device(flops=8.74e12 / 2, bandwidth=480e9 / 2)
# images a second and batch size of training on one; of its family, the network that was measured
K80_RATES = {
    "AlexNet": ("AlexNet v2", 656.0, 512),
    "VGG": ("VGG-16", 35.4, 32),
    "Inception": ("Inception v3", 30.5, 64),
    "ResNet": ("ResNet-50 v1", 51.9, 64),
}
CORE = Device(flops=2.3e9 * 32, bandwidth=76.8e9 / 18)
CPU_RATE, CPU_RATE_CORES, CPU_CORES = 5.7, 36, 32
CPU_BANDWIDTH = 1.0  # Gbit/s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", default=",".join(FIGURES))
    parser.add_argument("--bandwidth", type=float, default=10.0, help="of GPU workers, Gbit/s")
    arguments = parser.parse_args()
    for name in arguments.figures.split(","):
        began = time.perf_counter()
        FIGURES[name](arguments.bandwidth)
        print(f"\n({time.perf_counter() - began:.0f} s)\n")


# --- what is simulated ---


@functools.cache
def network(name: str) -> Network:
    return NETWORKS[name].build()


@functools.cache
def step(name: str, mode: Mode, batch: int) -> NetworkStep:
    return {"inference": inference, "training": training}[mode](network(name), batch)


@functools.cache
def gpu(family: str) -> Device:
    measured, rate, batch = K80_RATES[family]
    return replace(K80, share=_share(measured, batch, K80, rate))


@functools.cache
def cpu() -> Device:
    share = _share("Inception v3", 32, _cores(CPU_RATE_CORES), CPU_RATE)
    return replace(_cores(CPU_CORES), share=share)


def _cores(count: int) -> Device:
    return Device(count * CORE.flops, count * CORE.bandwidth)


def _share(name: str, batch: int, device: Device, rate: float) -> float:
    """The part of the roofline that training at so many images a second comes to."""
    return float(seconds(step(name, "training", batch), device).sum()) * rate / batch


@functools.cache
def replica(name: str, mode: Mode, environment: str = "gpu", batch: float = 1.0) -> Replica:
    made = step(name, mode, round(NETWORKS[name].batch * batch))
    device = cpu() if environment == "cpu" else gpu(name.partition(" ")[0].partition("-")[0])
    received, sent = (
        {node: parameter.bytes for node, parameter in own.items()}
        for own in (made.received, made.sent)
    )
    return Replica(made.graph, seconds(made, device), received, sent)


def servers(name: str, mode: Mode, count: int, *, in_turn: bool = False) -> dict[int, int]:
    """By node that is a transfer, its server: each parameter on that with the fewest bytes so far,
    or on the next one, as TensorFlow's default has it."""
    made = step(name, mode, NETWORKS[name].batch)
    tensors = [
        Receive(node, parameter.name, "/job:ps/task:0", "/job:worker/task:0", parameter.bytes, None)
        for node, parameter in sorted(made.received.items())
    ]
    numbers = itertools.cycle(range(count)) if in_turn else servers_of(tensors, count)
    place = {one.tensor: number for one, number in zip(tensors, numbers, strict=False)}
    return {node: place[p.name] for own in (made.received, made.sent) for node, p in own.items()}


@functools.cache
def simulated(
    name: str,
    mode: Mode,
    workers: int,
    count: int,
    bandwidth: float,
    *,
    environment: str = "gpu",
    batch: float = 1.0,
    in_turn: bool = False,
) -> Forecast:
    return forecast(
        replica(name, mode, environment, batch),
        workers,
        servers(name, mode, count, in_turn=in_turn),
        bandwidth * GIGABIT,
        ORDERS,
    )


def efficiency(name: str, mode: Mode, workers: int, bandwidth: float, step: float) -> float:
    """E of a worker's step (equation 3) with one server; transfers take as long as links that all
    share leave them."""
    job, server = replica(name, mode), servers(name, mode, 1)
    part = shared(job, workers, server, bandwidth * GIGABIT)
    alone = job.alone(bandwidth * GIGABIT)
    down, up = int(part.load().sum()), sum(alone[node] for node in job.sent) * workers * 1e9
    computing = int(job.seconds.sum() * 1e9)
    return Bounds(computing + down + int(up), max(computing, down, int(up))).efficiency(step * 1e9)


# --- the figures ---


@dataclass(frozen=True)
class Column:
    head: str
    cell: Callable[[str], float]


def table(columns: Sequence[Column], form: str = "{:+.1%}") -> list[list[float]]:
    """A row for each network; the cells."""
    print("| | " + " | ".join(column.head for column in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    rows = []
    for name in NETWORKS:
        rows.append([column.cell(name) for column in columns])
        print(f"| {name} | " + " | ".join(form.format(cell) for cell in rows[-1]) + " |")
    return rows


def gains(columns: Iterable[tuple[str, Callable[[str, Mode], Forecast]]]) -> None:
    """Of TIC in inference and training, with what the paper claims about them."""
    found = list(columns)
    both = []
    for mode in MODES:
        print(f"\nSteps a second gained by tic in {mode}:\n")
        rows = table(
            [Column(head, lambda n, c=cell, m=mode: c(n, m).gain("tic")) for head, cell in found]
        )
        both.append([cell for row in rows for cell in row])
        size = [sum(p.bytes for p in network(name).parameters) for name in NETWORKS]
        ops = [len(step(name, mode, NETWORKS[name].batch).graph) for name in NETWORKS]
        best = [max(row) for row in rows]
        print(
            f"\nup to {max(both[-1]):.1%}, at worst {min(both[-1]):.1%}, median "
            f"{statistics.median(both[-1]):.1%}; rank correlation of a network's best with its "
            f"bytes {ranked(size, best):.2f}, with its ops {ranked(ops, best):.2f}"
        )
    more = sum(one > other for one, other in zip(*both, strict=True))
    print(f"\ninference gains more than training in {more} of {len(both[0])}")


def ranked(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's correlation."""
    return statistics.correlation(*(np.argsort(np.argsort(v)).tolist() for v in (one, other)))


def figure_7(bandwidth: float) -> None:
    print(f"Figure 7: workers, a server for every four, GPUs, {bandwidth:g} Gbit/s")
    gains(
        (f"{w} workers", lambda n, m, w=w: simulated(n, m, w, max(1, w // 4), bandwidth))
        for w in (2, 4, 8, 16)
    )


def figure_9(bandwidth: float) -> None:
    print(f"Figure 9: servers of 8 workers, GPUs, {bandwidth:g} Gbit/s")
    even = [(f"{s} servers", lambda n, m, s=s: simulated(n, m, 8, s, bandwidth)) for s in (1, 2, 4)]
    turns = [
        (f"{s}, in turn", lambda n, m, s=s: simulated(n, m, 8, s, bandwidth, in_turn=True))
        for s in (2, 4)
    ]
    gains([*even, *turns])


def figure_10(bandwidth: float) -> None:
    print(f"Figure 10: batch sizes with 4 workers and a server, GPUs, {bandwidth:g} Gbit/s")
    gains(
        (f"batch x{b:g}", lambda n, m, b=b: simulated(n, m, 4, 1, bandwidth, batch=b))
        for b in BATCHES
    )


def figure_11(bandwidth: float) -> None:
    print(f"Figure 11: 4 workers and a server, GPUs, {bandwidth:g} Gbit/s")
    for mode in MODES:
        print(f"\nE in {mode}, and the part of a step in which the worker that is done waits:\n")

        def found(name: str, mode: Mode = mode) -> Forecast:
            return simulated(name, mode, 4, 1, bandwidth)

        def e(name: str, step: float, mode: Mode = mode) -> float:
            return efficiency(name, mode, 4, bandwidth, step)

        rows = table(
            [
                Column("E, none", lambda n: e(n, found(n).seconds)),
                Column("E, tic", lambda n: e(n, found(n).ordered["tic"].seconds)),
                Column("waits, none", lambda n: found(n).waiting),
                Column("the most", lambda n: max(step.waiting for step in found(n).none)),
                Column("waits, tic", lambda n: found(n).ordered["tic"].waiting),
            ],
            "{:.2f}",
        )
        print(
            "\nmedian: " + ", ".join(f"{statistics.median(c):.2f}" for c in zip(*rows, strict=True))
        )


def figure_13(_: float) -> None:
    print(f"Figure 13: TIC and TAC, 4 workers and a server, CPUs, {CPU_BANDWIDTH:g} Gbit/s")
    for mode in MODES:
        print(f"\nSteps a second gained in {mode}:\n")

        def found(name: str, mode: Mode = mode) -> Forecast:
            return simulated(name, mode, 4, 1, CPU_BANDWIDTH, environment="cpu")

        rows = table([Column(order, lambda n, o=order: found(n).gain(o)) for order in ORDERS])
        print(f"\nfurthest apart: {max(abs(one - other) for one, other in rows):.3%}")


def sweep(_: float) -> None:
    print("Bandwidth: 4 workers and a server, GPUs, Gbit/s")
    gains((f"{rate:g}", lambda n, m, r=rate: simulated(n, m, 4, 1, r)) for rate in RATES)
    print("\nTransfers of the parameters over computing before the backward half, where tic's gain "
          "is the most:\n")  # fmt: skip

    def ratio(name: str, mode: Mode) -> float:
        best = max(RATES, key=lambda rate: simulated(name, mode, 4, 1, rate).gain("tic"))
        forward = replica(name, "inference").seconds.sum()
        alone = replica(name, "inference").alone(best * GIGABIT)
        return 4 * sum(alone.values()) / float(forward)

    table([Column(mode, functools.partial(ratio, mode=mode)) for mode in MODES], "{:.2f}")


def orders(bandwidth: float) -> None:
    print("Seconds to find an order for a worker in training, 4 workers and a server:\n")

    def taken(name: str, order: str) -> float:
        job = replica(name, "training")
        began = time.perf_counter()
        ORDERS[order](shared(job, 4, servers(name, "training", 1), bandwidth * GIGABIT))
        return time.perf_counter() - began

    table([Column(order, functools.partial(taken, order=order)) for order in ORDERS], "{:.3f}")


FIGURES: dict[str, Callable[[float], None]] = {
    "7": figure_7,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "13": figure_13,
    "bandwidth": sweep,
    "orders": orders,
}

if __name__ == "__main__":
    main()
