"""What enforcement itself costs: every op at the job's own thread count by dltune's orders, against
the framework's own pool, in turns within one process. Or what recording each op costs.

    python scripts/bench/bench_overhead.py [--pairs 300] [--recorded] [-- python train.py]

Prints the median of the paired ratios of step times and its 95 % interval.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
from statistics import median

from in_turns import FIRST, SECOND, executions

from dltune.job.protocol import Orders
from dltune.job.record import NANOSECOND, Record
from dltune.stats import paired_ratio
from dltune.system import topology

PLAIN, DEARER = FIRST, SECOND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--recorded", action="store_true", help="ops are recorded, not ordered")
    parser.add_argument("--json", action="store_true")
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

    def orders(version: int, signature: str, record: Record) -> Orders:
        if version == PLAIN:
            return Orders(PLAIN, targets=[signature])
        if options.recorded:
            return Orders(DEARER, targets=[signature], events=True)
        device = record.settings()
        threads = device.intra if device else len(cores)
        # PyTorch's ops are not even heard of where none has another number
        other = {"of no op": (1, cores[:1])}
        return Orders(DEARER, targets=[signature], fallback=(threads, cores), ops=other)

    seen = itertools.islice(executions(command, machine, orders), 2 * options.pairs + 1)
    # a step's wall time: from its start to the next one's
    counted = [(a.version, (b.start - a.start) * NANOSECOND) for a, b in itertools.pairwise(seen)]
    pairs = [
        (b[1], a[1]) if a[0] == PLAIN else (a[1], b[1])
        for a, b in zip(counted[::2], counted[1::2], strict=False)
    ]
    interval = paired_ratio(pairs)
    result = {
        "pairs": len(pairs),
        "plain_ms": median([plain for _, plain in pairs]) * 1e3,
        "dearer_ms": median([dearer for dearer, _ in pairs]) * 1e3,
        "ratio": interval.median,
        "low": interval.low,
        "high": interval.high,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"{result['pairs']} pairs: plain {result['plain_ms']:.2f} ms, "
            f"{'recorded' if options.recorded else 'ordered'} {result['dearer_ms']:.2f} ms; ratio "
            f"{interval.median:.4f} "
            f"(95 %: {interval.low:.4f} to {interval.high:.4f})"
        )


if __name__ == "__main__":
    main()
