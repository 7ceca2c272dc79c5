"""Why an op's arithmetic stays far below the machine's peak, as far as that can be known.

Three causes, which the op's key, the framework's build target and arithmetic distinguish:

- Its kernel is the framework's own (Eigen), compiled without the machine's widest instructions.
  oneDNN's kernels are not: they are made while the job runs, for the CPU that is there. In
  TensorFlow that is also where float32's plain `MatMul` computes (Eigen's contraction calls
  oneDNN's `sgemm`), but not where float64's does.
- oneDNN has kernels for this op and type, and it is not one of them that runs.
- The shape is too thin: of a product of matrices m x k and k x n an element of the first is used n
  times, of the second m times, of the result k times. A kernel reads each and writes it once, into
  its own blocks or as a result, so that with d uses it moves for as long as it computes where
  d = size * peak / bandwidth.

Denormal numbers are none of TensorFlow's causes: its threads flush them to zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.flops import factors
from dltune.analysis.keys import Key, parse
from dltune.analysis.roofline import PEAKS
from dltune.schemas.graph import SIZES
from dltune.schemas.machine import MEMORY, Bandwidth, Peak, Roofs

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
    """The causes, the lowest ceiling first; none for an op that is not far below its roof, and none
    where the machine's were not measured."""
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
    shape = factors(key)
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
