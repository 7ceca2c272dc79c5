"""What reading counters costs the ops themselves: recorded with counters against recorded without,
in turns within one process, one op at a time on all cores, as the profile measures them.

    python scripts/bench_counters.py [--pairs 60] [--counters software] [-- python train.py ...]

Prints the median of the paired ratios and its 95 % interval: of the summed times of the ops that
take at least 100 us, and of the whole step.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections import defaultdict

from dltune.job.launch import Event, Job, Process
from dltune.job.messages import Execution
from dltune.job.orders import Orders, alternate_line, machine_lines
from dltune.job.record import NANOSECOND, Record, main_graph, span
from dltune.machine import topology
from dltune.machine.perf import presets
from dltune.statistics import median, ratio_interval

DISCOVER, BARE, COUNTED = 1, 2, 3
WARM_UP = 6  # executions after the switch that are not compared
HEAVY = 100e-6  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--counters", default="software")
    parser.add_argument("job", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the jobs are ended then too
    command = options.job or [sys.executable, "scripts/train_resnet50.py", "--steps", "1000000"]
    machine = topology.local()
    cores = tuple(range(len(machine.cores)))
    records: dict[int, Record] = {}
    counters, why = presets.choose(options.counters)
    executions: list[Execution] = []

    def greet(process: Process) -> list[str]:
        records[process.pid] = Record(process.hello)
        return [*machine_lines(machine), *Orders(DISCOVER, discover=True).lines()]

    def orders(version: int, signature: str) -> Orders:
        return Orders(
            version,
            targets=[signature],
            events=True,
            serial=True,
            fallback=(len(cores), cores),
            counters=counters if version == COUNTED else (),
        )

    def start_turns(event: Event, graph: int) -> None:
        assert event.process is not None
        signature = records[event.process.pid].graphs[graph].signature
        event.process.order(
            [
                *orders(BARE, signature).lines(),
                *orders(COUNTED, signature).lines(),
                alternate_line([BARE, COUNTED]),
            ]
        )

    graph = None
    with Job(command, greet=greet, stdout=subprocess.DEVNULL) as job:
        for event in job.events(1.0):
            if event is None or event.process is None:
                continue
            message = event.message
            record = records[event.process.pid]
            if not isinstance(message, Execution):
                record.add(message)
            elif graph is None:
                record.add(message)
                main = main_graph(record)
                if main is not None and len(record.executions[main]) >= 5:
                    graph = main
                    start_turns(event, graph)
            elif message.graph == graph and message.version != DISCOVER:
                executions.append(message)
                if len(executions) >= 2 * options.pairs + WARM_UP:
                    break
    kept = executions[WARM_UP:]
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
        found = ratio_interval([(seconds(counted), seconds(bare)) for counted, bare in couples])
        print(
            f"{what}: {found.rounds} pairs, {median([seconds(b) for _, b in couples]) * 1e3:.1f} "
            f"ms without, ratio {found.median:.4f} (95 %: {found.low:.4f} to {found.high:.4f})"
        )


if __name__ == "__main__":
    main()
