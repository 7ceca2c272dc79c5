"""What reading counters costs the ops themselves: recorded with counters against recorded without,
in turns within one process, one op at a time on all cores, as the profile measures them.

    python scripts/bench/bench_counters.py [--pairs 60] [--counters software]
        [-- python train.py ...]

Prints the median of the paired ratios and its 95 % interval: of the summed times of the ops that
take at least 100 us, and of the whole step.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
from collections import defaultdict
from statistics import median

from in_turns import FIRST, SECOND, executions

from dltune.job.protocol import Execution, Orders
from dltune.job.record import NANOSECOND, Record, span
from dltune.stats import paired_ratio
from dltune.system import topology
from dltune.system.perf import presets

BARE, COUNTED = FIRST, SECOND
HEAVY = 100e-6  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--counters", default="software")
    parser.add_argument("job", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the jobs are ended then too
    command = options.job or [
        sys.executable,
        "scripts/examples/train_resnet50.py",
        "--steps",
        "1000000",
    ]
    machine = topology.local()
    cores = tuple(range(len(machine.cores)))
    counters, why = presets.choose(options.counters)

    def orders(version: int, signature: str, _: Record) -> Orders:
        return Orders(
            version,
            targets=[signature],
            events=True,
            serial=True,
            fallback=(len(cores), cores),
            counters=counters if version == COUNTED else (),
        )

    kept = list(itertools.islice(executions(command, machine, orders), 2 * options.pairs))
    times: dict[int, list[float]] = defaultdict(list)  # by node
    for execution in kept:
        for node, _, threads, _, start, end, _ in execution.events:
            if threads > 0:
                times[node].append((end - start) * NANOSECOND)
    heavy = {node for node, seconds in times.items() if median(seconds) >= HEAVY}

    def in_heavy_ops(execution: Execution) -> float:
        return sum((e[5] - e[4]) * NANOSECOND for e in execution.events if e[0] in heavy)

    couples = [
        (a, b) if a.version == COUNTED else (b, a)
        for a, b in zip(kept[::2], kept[1::2], strict=False)
    ]
    print(f"counted: {', '.join(event.name for event in counters)}. {why}")
    heavy_ops = f"{len(heavy)} ops of 100 us or more"
    for what, seconds in ((heavy_ops, in_heavy_ops), ("the step", span)):
        found = paired_ratio([(seconds(counted), seconds(bare)) for counted, bare in couples])
        print(
            f"{what}: {found.rounds} pairs, {median([seconds(b) for _, b in couples]) * 1e3:.1f} "
            f"ms without, ratio {found.median:.4f} (95 %: {found.low:.4f} to {found.high:.4f})"
        )


if __name__ == "__main__":
    main()
