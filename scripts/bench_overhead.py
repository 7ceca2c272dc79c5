"""What enforcement itself costs: every op on dltune's views at the job's own thread count, against
TensorFlow's own pool, in turns within one process.

    python scripts/bench_overhead.py [--pairs 300] [-- python scripts/train_resnet50.py ...]

Prints the median of the paired ratios of step times and its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys

from dltune.job.launch import Event, Job, Process
from dltune.job.messages import Execution
from dltune.job.orders import Orders, alternate_line, machine_lines
from dltune.job.record import NANOSECOND, Record, main_graph
from dltune.machine import topology
from dltune.statistics import median, ratio_interval

DISCOVER, PLAIN, VIEWS = 1, 2, 3
WARM_UP = 6  # executions after the switch that are not counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("job", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the jobs are ended then too
    command = options.job or [sys.executable, "scripts/train_resnet50.py", "--steps", "1000000"]
    machine = topology.local()
    cores = tuple(range(len(machine.cores)))
    records: dict[int, Record] = {}
    walls: list[tuple[int, float]] = []  # version, seconds

    def greet(process: Process) -> list[str]:
        records[process.pid] = Record(process.hello)
        return [*machine_lines(machine), *Orders(DISCOVER, discover=True).lines()]

    def start_turns(event: Event, graph: int) -> None:
        assert event.process is not None
        record = records[event.process.pid]
        target = [record.graphs[graph].signature]
        device = record.settings()
        threads = device.intra if device else len(cores)
        event.process.order(
            [
                *Orders(PLAIN, targets=target).lines(),
                *Orders(VIEWS, targets=target, fallback=(threads, cores)).lines(),
                alternate_line([PLAIN, VIEWS]),
            ]
        )

    graph, last = None, None
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
                if last is not None:
                    walls.append((last.version, (message.start - last.start) * NANOSECOND))
                last = message
                if len(walls) >= 2 * options.pairs + WARM_UP:
                    break
    counted = walls[WARM_UP:]
    pairs = [
        (b[1], a[1]) if a[0] == PLAIN else (a[1], b[1])
        for a, b in zip(counted[::2], counted[1::2], strict=False)
    ]
    interval = ratio_interval(pairs)
    result = {
        "pairs": len(pairs),
        "plain_ms": median([plain for _, plain in pairs]) * 1e3,
        "views_ms": median([views for views, _ in pairs]) * 1e3,
        "ratio": interval.median,
        "low": interval.low,
        "high": interval.high,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"{result['pairs']} pairs: plain {result['plain_ms']:.1f} ms, on views "
            f"{result['views_ms']:.1f} ms; ratio {interval.median:.4f} "
            f"(95 %: {interval.low:.4f} to {interval.high:.4f})"
        )


if __name__ == "__main__":
    main()
