"""FlexFlow's Table 4, Fig. 8 and Fig. 12 with dltune's search: strategies for six networks on 4 to
64 simulated GPUs.

    python scripts/bench/bench_parallelism.py [--cluster k80] [--gpus 4,8,16,32,64] [--networks NMT]
                                        [--fixed 5000] [--seeds 3] [--methods]

For each network and number of GPUs:

- `paper`: seconds of the delta column of Table 4.
- `published`: the paper's own search (one operator at a time, from data parallelism and from a
  random strategy), with as many proposals as `--fixed` from each: milliseconds of a step, and the
  seconds that it took.
- `ours`: dltune's search with a hundredth of the paper's seconds where these are 10 or more, else
  with 0.1 s; the median of `--seeds`, and how many of these are as short as `published` or shorter.
- how many times longer a step takes with data parallelism, with what experts do, and with the
  additive model's optimum (OptCNN); bytes between devices, data parallel over ours (Fig. 8).

`--methods`: instead the seconds of one search, same proposals, by each way to simulate (Fig. 12).
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time

from dltune.systems.parallelism.inputs import CLUSTERS
from dltune.systems.parallelism.model.engine import METHODS, Chain, Engine, Here
from dltune.systems.parallelism.model.problem import Problem, problem, roofline, soap
from dltune.systems.parallelism.model.search import (
    data_parallel,
    expert,
    least_sum,
    random_strategy,
    search,
    single,
)
from dltune.systems.parallelism.networks import NETWORKS

TABLE_4 = {
    "AlexNet": (0.04, 0.13, 0.48, 1.8, 5.9),
    "ResNet-101": (0.4, 1.4, 7.3, 33, 158),
    "Inception-v3": (4.1, 17, 77, 298, 1278),
    "RNNTC": (7.5, 39, 170, 516, 1489),
    "RNNLM": (9.2, 31, 121, 342, 969),
    "NMT": (16, 65, 328, 701, 2190),
}
GPUS = (4, 8, 16, 32, 64)
LARGE = 3.0  # seconds, from which on the additive model's optimum is one of the starts
TEMPERATURE = 0.005  # of the paper's search, which does not tell its own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="k80", choices=CLUSTERS)
    parser.add_argument("--gpus", default=",".join(map(str, GPUS)))
    parser.add_argument("--networks", default=",".join(TABLE_4))
    parser.add_argument("--fixed", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", action="store_true")
    asked = parser.parse_args()
    for name in asked.networks.split(","):
        for gpus in map(int, asked.gpus.split(",")):
            posed = pose(name, asked.cluster, gpus)
            if asked.methods:
                compare_methods(name, gpus, posed, asked.fixed)
            else:
                row(name, gpus, posed, asked.fixed, asked.seeds)


def pose(name: str, cluster: str, gpus: int) -> Problem:
    topology = CLUSTERS[cluster](gpus)
    hosts = len({device.host for device in topology.devices})
    return problem(NETWORKS[name](), topology, functools.partial(soap, hosts=hosts), roofline)


def row(name: str, gpus: int, posed: Problem, fixed: int, seeds: int) -> None:
    engine = Engine(posed)
    paper = TABLE_4[name][GPUS.index(gpus)]
    began = time.perf_counter()
    published = min(
        engine.walk(start, Chain(1, TEMPERATURE, fixed, moves="one")).best_time
        for start in (data_parallel(posed), random_strategy(posed, 1))
    )
    published_seconds = time.perf_counter() - began
    budget = paper / 100 if paper >= 10 else 0.1
    began = time.perf_counter()
    starts = {
        "data parallel": data_parallel(posed),
        "expert": expert(posed),
        "single": single(posed),
    }
    if budget >= LARGE:
        starts["additive"] = least_sum(posed)
    ready = time.perf_counter() - began
    found = [
        search(posed, starts, Here(engine), seed=seed, seconds=max(budget - ready, 0.01))
        for seed in range(seeds)
    ]
    ours = statistics.median_low([one.time for one in found])
    best = next(one for one in found if one.time == ours)
    as_short = sum(one.time <= published for one in found)
    data, manual = (best.starts[which][1] for which in ("data parallel", "expert"))
    additive = engine.simulate(least_sum(posed))
    engine.simulate(starts["data parallel"])
    bytes = engine.totals().bytes
    engine.simulate(best.strategy)
    print(
        f"{name:13} {gpus:3}  paper {paper:7.2f} s  published {published / 1e6:8.2f} ms in "
        f"{published_seconds:6.2f} s  ours {ours / 1e6:8.2f} ms in {ready + best.seconds:6.2f} s "
        f"({best.proposals} proposals), {as_short} of {seeds}  data parallel {data / ours:5.2f}x  "
        f"expert {manual / ours:5.2f}x  additive {additive / ours:5.2f}x  bytes "
        f"{bytes / max(engine.totals().bytes, 1):5.2f}x",
        flush=True,
    )


def compare_methods(name: str, gpus: int, posed: Problem, fixed: int) -> None:
    engine = Engine(posed)
    start = data_parallel(posed)
    for moves in ("one", "several"):
        told = []
        for method in METHODS:
            walk = engine.walk(start, Chain(1, TEMPERATURE, fixed, moves=moves, method=method))
            told.append(f"{method} {walk.seconds:7.2f} s")
        kind = f"{moves} at once"
        print(f"{name:13} {gpus:3}  {kind:15} {'  '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
