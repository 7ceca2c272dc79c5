"""The machine's roofs beside likwid-bench's, and what thin products of matrices come to.

    python scripts/bench/bench_roofs.py likwid --turns 15
    python scripts/bench/bench_roofs.py shapes

`likwid`: the same work by dltune's kernels and by likwid-bench's (`apt-get install likwid`), case
by case in turns of some milliseconds each, both before what else the machine does (needs root for
that). Roofs are maxima, so that the most of each side is compared; medians and spreads tell how
much was in the way. likwid-bench's arrays get huge pages as dltune's do.

`shapes`: products of as many operations in TensorFlow, square and thin, as shares of the roof, and
what arithmetic says of them (`dltune.analysis.op_causes`).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dltune.analysis.op_causes import allowed
from dltune.system import topology
from dltune.system.roofs import measure
from dltune.system.roofs.measure import Case, Level, levels, room
from dltune.system.roofs.roofs_binding import Memory, peak

SECONDS = 4e-3  # of a turn, about
BEFORE = -15  # of the priorities, others have 0
_PEAKS = {
    "float64, AVX-512": ("avx512_double", "peakflops_avx512_fma", 16),
    "float32, AVX-512": ("avx512_float", "peakflops_sp_avx512_fma", 32),
    "float64, AVX2 and FMA": ("fma_double", "peakflops_avx_fma", 8),
    "float32, AVX2 and FMA": ("fma_float", "peakflops_sp_avx_fma", 16),
}
_STREAMS = {"read": ("avx512_read", "load_avx512"), "triad": ("avx512_triad", "stream_avx512_fma")}
# operations in the products of `shapes`, and the shapes m, n, k
_SHAPES = (
    *((1024, 1024, 1024), (16384, 256, 256), (16384, 64, 1024), (65536, 50, 25), (65536, 25, 50)),
    *((1024, 65536, 16), (8192, 16, 8192), (16, 8192, 8192)),
)


@dataclass(frozen=True)
class Pair:
    """A turn of each side gives a rate, in flop/s or bytes/s."""

    name: str
    ours: Callable[[], float]
    theirs: Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("likwid", "shapes"))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--cases", default="", help="A regular expression: of `likwid`, these.")
    arguments = parser.parse_args()
    _favour()
    if arguments.what == "likwid":
        beside(arguments.turns, arguments.cases)
    else:
        shapes()


def beside(turns: int, wanted: str) -> None:
    machine = topology.local()
    cpus = [core.cpus[0] for core in machine.cores]
    there = levels(machine)
    with Memory(cpus, room(there)) as memory:
        pairs = [p for p in _pairs(cpus, memory, there) if re.search(wanted, p.name)]
        rates: dict[str, tuple[list[float], list[float]]] = {p.name: ([], []) for p in pairs}
        for turn in range(turns):
            for pair in pairs:
                ours, theirs = rates[pair.name]
                for side in (0, 1) if turn % 2 else (1, 0):
                    (ours, theirs)[side].append((pair.ours, pair.theirs)[side]())
    print("| case | dltune | median | likwid-bench | median | dltune over likwid-bench |")
    print("|---|---|---|---|---|---|")
    for name, (ours, theirs) in rates.items():
        sides = (
            f"{max(rates) / 1e9:.1f} | {statistics.median(rates) / 1e9:.1f} ({_spread(rates):.0%})"
            for rates in (ours, theirs)
        )
        print(f"| {name} | {' | '.join(sides)} | {max(ours) / max(theirs):.3f} |")


def _pairs(cpus: list[int], memory: Memory, there: list[Level]) -> Iterator[Pair]:
    for name, (ours, theirs, width) in _PEAKS.items():
        for count in sorted({1, len(cpus)}):
            case = Case(lambda n, k=ours, c=count: peak(k, cpus[:c], n))
            case.calibrate(1 << 14)
            # their array is in L1; an operation on each of its numbers is one of `_operations`
            passes = round(SECONDS * 4e9 * width * 2 / _operations(theirs))
            kilobytes = 24 * count
            yield Pair(
                f"{name}, {count} cores",
                lambda case=case: _turn(case),
                lambda t=theirs, k=kilobytes, c=count, p=passes: _likwid(t, k, c, p, "MFlops/s"),
            )
    for level in there:
        for way, (ours, theirs) in _STREAMS.items():
            for count in sorted({1, len(cpus)}):
                sizes = [level.one] if count == 1 else list(level.each)
                case = Case(lambda n, k=ours, s=sizes: memory.stream(k, s, n))
                case.calibrate(1)
                passes = max(1, round(case.times * SECONDS / 0.5e-3))
                yield Pair(
                    f"{level.name}, {way}, {count} cores",
                    lambda case=case: _turn(case),
                    lambda t=theirs, s=sizes, c=count, p=passes: _likwid(
                        t, sum(s) // 1024, c, p, "MByte/s"
                    ),
                )


def _operations(kernel: str) -> int:
    """likwid-bench's peak kernels do so many operations a pass over 24 KiB, about."""
    return 30 * 24 * 1024 // (4 if "_sp_" in kernel else 8)


def _turn(case: Case) -> float:
    seconds, work = case.turn(max(1, round(case.times * SECONDS / 0.5e-3)))
    return work / seconds


def _likwid(kernel: str, kilobytes: int, cores: int, passes: int, unit: str) -> float:
    """A rate of likwid-bench's, which counts 1 kB as 1000 bytes."""
    command = ["likwid-bench", "-t", kernel, "-i", str(max(1, passes))]
    command += ["-w", f"N:{round(kilobytes * 1.024)}kB:{cores}"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    )
    found = re.search(rf"{unit}:\s+([\d.]+)", done.stdout)
    assert found, done.stdout
    return float(found[1]) * 1e6


def shapes() -> None:
    import tensorflow as tf

    roofs = measure.roofs_of(topology.local(), lambda: print("measuring the roofs"))
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print("| m, n, k | " + " | ".join(("float64", "float32", "bfloat16")) + " |")
    print("|---|---|---|---|")
    for m, n, k in _SHAPES:
        cells = []
        for dtype, size in (("float64", 8), ("float32", 4), ("bfloat16", 2)):
            roof = roofs.peak(dtype)
            assert roof
            rate = 2 * m * n * k / _best(tf, m, n, k, dtype)
            said = allowed(roofs, roof, size, (1, m, n, k))
            assert said
            cells.append(f"{rate / 1e9:.0f}, {rate / roof.rate:.0%} of the roof ({said.share:.0%})")
        print(f"| {m}, {n}, {k} | {' | '.join(cells)} |", flush=True)


def _best(tf, m: int, n: int, k: int, dtype: str) -> float:
    """Seconds, the least of half a second's runs."""
    a = tf.cast(tf.random.uniform((m, k)), dtype)
    b = tf.cast(tf.random.uniform((k, n)), dtype)
    product = tf.function(lambda a, b: tf.matmul(a, b))
    product(a, b)
    best, end = float("inf"), time.perf_counter() + 0.5
    while time.perf_counter() < end:
        began = time.perf_counter()
        product(a, b)
        best = min(best, time.perf_counter() - began)
    return best


def _spread(rates: list[float]) -> float:
    """Half the interquartile range over the median."""
    low, _, high = statistics.quantiles(rates, n=4)
    return (high - low) / 2 / statistics.median(rates)


def _favour() -> None:
    """Before what else the machine does; the other side is started from here and is as well."""
    os.setpriority(os.PRIO_PROCESS, 0, BEFORE)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(BEFORE))


if __name__ == "__main__":
    main()
