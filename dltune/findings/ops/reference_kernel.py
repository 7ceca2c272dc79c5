"""Ops in a precision for which the CPU has no fast kernel."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.keys import parse
from dltune.analysis.parts import working
from dltune.documents.finding import Finding, Gain
from dltune.findings.seen import Seen

SHARE = 0.05  # of the op time
# dtypes whose kernels fall back to ones without vector instructions, but on the newest CPUs
SLOW = {"half": "float16"}
# times as long as in float32: a convolution took 10 times as long on a Zen 5, a product as long
SLOWER = 3.0


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost is known from other jobs: what such ops take more than in float32."""
    if seen.profile is None:
        return
    total = slow = 0.0
    types: dict[tuple[str, str], float] = {}
    for figures in seen.profile.ops:
        own = (figures.op.own or 0.0) * figures.op.count
        total += own
        key = parse(figures.op)
        dtype = next((t.dtype for t in key.inputs if t.dtype in SLOW), None) if key else None
        if dtype:
            slow += own
            name = figures.op.type, SLOW[dtype]
            types[name] = types.get(name, 0.0) + own
    if total <= 0 or slow / total < SHARE:
        return
    share = slow / total * working(seen.profile.profile) * (1 - 1 / SLOWER)
    (heaviest, dtype) = max(types, key=lambda name: types[name])
    yield Finding(
        "reference-kernel",
        f"{slow / total:.0%} of the op time is in {dtype}, for which this CPU has no fast kernels",
        f"most of it in {heaviest}, which falls back to a reference implementation: elsewhere such "
        f"convolutions took up to ten times as long as in float32",
        "train in float32, or in bfloat16 where the CPU has avx512_bf16 or amx_bf16 (Keras: "
        "set_dtype_policy('float32'))",
        share=share,
        gain=Gain(0.0, share),
        sure="rule",
    )
