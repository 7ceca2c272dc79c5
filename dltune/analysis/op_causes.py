"""Causes that hold an op back, with the figures that show them.

`why` names the cause of an op at its best thread count. `below_roof` explains arithmetic far below
the machine's peak in more detail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dltune.analysis.flops import matrix_factors
from dltune.analysis.keys import Key, parse
from dltune.analysis.roofline import PEAKS, Analysis, Ceiling, Figures
from dltune.schemas.graph import SIZES
from dltune.schemas.machine import MEMORY, Bandwidth, Peak, Roofs

# Arithmetic far below the machine's peak

Reason = Literal["instructions", "no oneDNN", "thin"]

# share of its roof: tuned kernels come to 60 % and more on shapes that allow it.
FAR = 0.6
# parts of an op's instructions that its framework can lack
_NEEDS: Mapping[str, frozenset[str]] = {
    "SSE2": frozenset(),
    "AVX": frozenset({"AVX"}),
    "AVX2 and FMA": frozenset({"AVX2", "FMA"}),
    "AVX-512": frozenset({"AVX512F"}),
}
# that oneDNN has for numbers of 32 and of 16 bits (TensorFlow's list; docs/explanation/profile.md)
_ONEDNN = frozenset(
    {
        *("BatchMatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul"),
        *("Conv2DBackpropFilter", "Conv2DBackpropInput"),
        *("Conv3DBackpropFilter", "Conv3DBackpropInput"),
    }
)


@dataclass(frozen=True)
class BelowRoof:
    """`ceiling`: the op's highest rate as long as this is so, in flop/s; None where that
    is not known. `sentence`: with the evidence in numbers."""

    reason: Reason
    ceiling: float | None
    sentence: str


def below_roof(figures: Figures, analysis: Analysis) -> tuple[BelowRoof, ...]:
    """Return why an op's arithmetic stays far below the machine's peak, as far as can be known.

    The op's key, the framework's build target and arithmetic distinguish three causes:

    - Its kernel is the framework's own (Eigen), compiled without the machine's widest instructions.
      oneDNN's kernels are not: they are made while the job runs, for the CPU that is there. In
      TensorFlow that is also where float32's plain `MatMul` computes (Eigen's contraction calls
      oneDNN's `sgemm`), but not where float64's does.
    - oneDNN has kernels for this op and type, but another kernel runs.
    - The shape is too thin: of a product of matrices m x k and k x n an element of the first is
      used n times, of the second m times, of the result k times. A kernel reads each and writes it
      once, into its own blocks or as a result. So with d uses it moves for as long as it computes
      where d = size * peak / bandwidth.

    Denormal numbers are not a cause in TensorFlow: its threads flush them to zero.

    The cause with the lowest ceiling comes first. There is none for an op that is not far below its
    roof, and none where the machine's roofs were not measured.
    """
    best, roofs = figures.best, analysis.profile.roofs
    key = parse(figures.op)
    if best is None or roofs is None or key is None or key.family not in _ONEDNN:
        return ()
    rate, dtype, position = best.rates.flop_rate, best.dtype or "", figures.position
    roof = next((peak for of in PEAKS.get(dtype, ()) if (peak := roofs.peak(of))), None)
    if roof is None or not rate or position is None or position.share >= FAR:
        return ()
    found = [*_kernel(figures, analysis, dtype, roof), *_thin(key, dtype, roof, roofs)]
    return tuple(sorted(found, key=lambda one: one.ceiling or roof.rate))


def _kernel(figures: Figures, analysis: Analysis, dtype: str, roof: Peak) -> Iterator[BelowRoof]:
    if figures.op.type.startswith("_Mkl"):
        return
    profile = analysis.profile
    assert profile.roofs is not None
    if dtype != "double":
        yield BelowRoof(
            "no oneDNN",
            None,
            f"it runs in the framework's own kernel instead of oneDNN's kernel for {dtype}: "
            "oneDNN is off, or was not chosen",
        )
        return
    lacks = profile.framework.lacks
    if lacks is None:
        return
    wider = sorted(set(lacks) & frozenset().union(*_NEEDS.values()))
    built = [name for name, needs in _NEEDS.items() if needs.isdisjoint(lacks)]
    peak = profile.roofs.peak(roof.dtype, among=built)
    if peak is None or peak.instructions == roof.instructions:
        return
    yield BelowRoof(
        "instructions",
        peak.rate,
        f"oneDNN has no kernel for {roof.dtype}, and the framework's own kernels are compiled "
        f"without {', '.join(wider)}: the peak of this machine is {_giga(peak.rate)} GFLOP/s with "
        f"{peak.instructions}, but {_giga(roof.rate)} GFLOP/s with {roof.instructions}",
    )


@dataclass(frozen=True)
class Allowed:
    """Limit of a product by its shape: a `share` of the peak, when to read and write a number once,
    out of this level, takes as long as `needed` uses of it."""

    share: float
    needed: float
    bandwidth: Bandwidth


def allowed(
    roofs: Roofs, roof: Peak, size: int, shape: tuple[int, int, int, int]
) -> Allowed | None:
    """Limit of products (number, m, n, k) of numbers of `size` bytes; None where no bandwidth is
    known, or nothing is multiplied."""
    batch, m, n, k = shape
    moved = batch * size * (m * k + k * n + m * n)
    level = next((cache.level for cache in roofs.caches if cache.bytes >= moved), MEMORY)
    bandwidth = roofs.bandwidth(level)
    if bandwidth is None or 0 in shape:
        return None
    needed = size * roof.rate / bandwidth.rate
    return Allowed(1 / (1 + sum(needed / uses for uses in (m, n, k))), needed, bandwidth)


def _thin(key: Key, dtype: str, roof: Peak, roofs: Roofs) -> Iterator[BelowRoof]:
    shape = matrix_factors(key)
    found = allowed(roofs, roof, SIZES[dtype], shape) if shape else None
    if shape is None or found is None or found.share >= FAR:
        return
    _, m, n, k = shape
    sides = ((n, "n", "the first matrix"), (m, "m", "the second matrix"), (k, "k", "the result"))
    uses, name, matrix = min(sides)
    yield BelowRoof(
        "thin",
        found.share * roof.rate,
        f"the matrices are too thin, {m} x {k} times {k} x {n}: {name} = {uses}, so each number "
        f"of {matrix} is used only {uses} times, but moving it at the "
        f"{_giga(found.bandwidth.rate)} GB/s of {found.bandwidth.level} takes as long as "
        f"{found.needed:.0f} uses; this shape can reach at most {found.share:.0%} of the peak of "
        f"{_giga(roof.rate)} GFLOP/s",
    )


def _giga(rate: float) -> str:
    return f"{rate / 1e9:.3g}"


# Sentences on why an op is slow. Each threshold is a judgement, stated here once with its reason.

Cause = Literal[
    "faults", "switched out", "memory", "compute", "waits", "kernel", "scaling", "unknown"
]

# A kernel near a ceiling gains little from anything but less work; tuned kernels reach 60 % and
# more of what a roofline allows, untuned ones seldom half.
NEAR_CEILING = 0.6
# If a profile lacks the cost of a page fault: half a microsecond is the very least, for
# the exception and the clearing of 4 KiB.
FAULT_SECONDS = 0.5e-6
# share of its CPU time; less could hide in the spread of the measurements.
FAULT_SHARE = 0.1
# Threads that lack a CPU a fifth of the time cost more than threads ever gain by placement.
CPU_SHARE = 0.8
# Switches of one run; fewer are the odd tick of the system, not a pattern.
SWITCHES = 1.0
# share of threads that each do a full share of the work; at 0.6 the second thread adds a fifth.
EFFICIENCY = 0.6
# Waking a thread takes some microseconds, so that shorter ops cannot gain by being divided.
SHORT_SECONDS = 20e-6


def why(figures: Figures, analysis: Analysis) -> tuple[Cause, str]:
    """Return the cause that holds an op back at its best thread count, and a sentence without the
    op's name, with the figures that it rests on.

    The first cause that applies is returned: causes from outside the op come before those within
    it. An op that meets no threshold is said to be unexplained.
    """
    best = figures.best
    if best is None:
        return (
            "unknown",
            "not measured at other thread counts, because it can wait for another op or for data",
        )
    return next(_causes(figures, analysis))


def _causes(figures: Figures, analysis: Analysis) -> Iterator[tuple[Cause, str]]:
    best = figures.best
    assert best is not None
    time, rates, roof = best.time, best.rates, analysis.roofline
    threads = _threads(time.threads)
    cpu = time.median * time.threads * min(1.0, rates.cpu_share or 1.0)
    if rates.faults is not None and cpu > 0:
        counters = analysis.profile.counters
        each = (counters and counters.fault_seconds) or FAULT_SECONDS
        share = min(1.0, rates.faults * each / cpu)
        if share >= FAULT_SHARE:
            yield (
                "faults",
                f"page faults: {rates.faults:.0f} per run, about {share:.0%} of its CPU time at "
                f"{each * 1e6:.2g} us each; the allocator maps its memory again in each run",
            )
    off = rates.cpu_share is not None and rates.cpu_share < CPU_SHARE
    if analysis.profile.framework.capabilities.counts_idle_threads and time.threads > 1:
        off = False  # threads that get none of the work sleep
    if off and rates.switches is not None and rates.switches >= SWITCHES:
        yield (
            "switched out",
            f"switched out: {rates.switches:.1f} context switches per run; its {threads} had a "
            f"CPU for only {rates.cpu_share:.0%} of the time",
        )
    key = figures.op.key
    near: list[tuple[float, Cause, str]] = []
    computing = roof.computing(best)
    if rates.flop_rate and computing:
        of = f"{rates.flop_rate / 1e9:.3g} GFLOP/s, {_of(rates.flop_rate, computing, key)}"
        near.append((rates.flop_rate / computing.rate, "compute", f"compute bound: {of}"))
    if found := roof.bandwidth(best):
        rate, ceiling, where = found
        of = f"{rate / 1e9:.3g} GB/s, {_of(rate, ceiling, key)}"
        if where == "cache":
            of += "; its data fit into the caches"
        near.append((rate / ceiling.rate, "memory", f"memory bound: {of}"))
    share, cause, sentence = max(near, key=lambda held: held[0], default=(0.0, "unknown", ""))
    if share >= NEAR_CEILING:
        yield cause, sentence
    if off:
        yield (
            "waits",
            f"waits: its {threads} had a CPU for only {rates.cpu_share:.0%} of the time"
            + _switched(rates.switches),
        )
    if rates.flop_rate and computing and (below := below_roof(figures, analysis)):
        of = f"{rates.flop_rate / 1e9:.3g} GFLOP/s, {_of(rates.flop_rate, computing, key)}"
        yield "kernel", f"below the roofline: {of}; " + "; ".join(one.sentence for one in below)
    if scaling := _scaling(figures):
        yield "scaling", scaling
    yield "unknown", f"unexplained by the measurements: {_known(figures, analysis)}"


def _switched(switches: float | None) -> str:
    if switches is None:
        return "; context switches were not counted"
    return f", with {switches:.1f} context switches per run"


def _scaling(figures: Figures) -> str | None:
    """On the most threads measured, at the better placement."""
    one = figures.one
    most = max((case.time.threads for case in figures.cases), default=1)
    if one is None or most == 1:
        return None
    there = min(case.time.median for case in figures.cases if case.time.threads == most)
    gain = one / there if there > 0 else 0.0
    if gain / most >= EFFICIENCY:
        return None
    short = f"; at {one * 1e6:.3g} us it is too short to be divided" if one < SHORT_SECONDS else ""
    return f"does not scale: {gain:.2f}x as fast with {most} threads as with one{short}"


def _known(figures: Figures, analysis: Analysis) -> str:
    """The figures that rule the causes out, or that there are none."""
    best, roof = figures.best, analysis.roofline
    assert best is not None
    found = []
    if best.rates.flop_rate and (computing := roof.computing(best)):
        share = best.rates.flop_rate / computing.rate
        found.append(f"{best.rates.flop_rate / 1e9:.3g} GFLOP/s ({share:.1%} of the peak)")
    if under := roof.bandwidth(best):
        rate, ceiling, _ = under
        found.append(f"{rate / 1e9:.3g} GB/s ({rate / ceiling.rate:.1%} of the peak)")
    if best.rates.cpu_share is not None:
        found.append(
            f"its {_threads(best.time.threads)} had a CPU for {best.rates.cpu_share:.0%} of the "
            "time"
        )
    if best.rates.faults is not None:
        found.append(f"{best.rates.faults:.0f} page faults per run")
    if figures.one and best.time.threads > 1:
        gain = figures.one / best.time.median if best.time.median > 0 else 0.0
        found.append(f"{gain:.2f}x as fast with {_threads(best.time.threads)}")
    if not best.time.counts:
        found.append("no events were counted")
    return ", ".join(found)


def _of(rate: float, ceiling: Ceiling, key: str) -> str:
    if ceiling.key == key:
        return f"the highest rate of any op, so the machine's peak can be higher ({ceiling.source})"
    share = f"{rate / ceiling.rate:.0%}"
    if ceiling.measured:
        return f"{share} of the highest rate of any op ({ceiling.source})"
    return f"{share} of the peak ({ceiling.source})"


def _threads(count: int) -> str:
    return f"{count} thread" + ("s" if count > 1 else "")
