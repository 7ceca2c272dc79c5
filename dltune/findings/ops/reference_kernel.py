"""Ops in a precision for which the CPU has no fast kernels."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import portion, unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain

SHARE = 0.05  # of the op time
# the type whose kernels use no vector instructions, except on the newest CPUs
SLOW = "half"
# time relative to float32: on a Zen 5, a convolution took 10 times as long, a product equally long
SLOWER = 3.0


@rule(
    "reference-kernel",
    "ops",
    summary="Ops compute in float16, for which the CPU has no fast kernels.",
    fix="Train in float32, or in bfloat16 if the CPU has avx512_bf16 or amx_bf16.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find slow ops. The cost is their additional time over float32, known from other jobs."""
    if evidence.profile is None:
        return
    profile = evidence.profile.profile
    slow, heaviest = portion(profile, lambda key: any(t.dtype == SLOW for t in key.inputs))
    if slow < SHARE:
        return
    share = slow * working(profile) * (1 - 1 / SLOWER)
    yield Finding(
        title=f"{slow:.0%} of the op time is in float16, for which this CPU has no fast kernels",
        evidence=f"most of this time is in {heaviest}, which falls back to a reference "
        "implementation; in other jobs, such convolutions took up to ten times as long as in "
        "float32",
        fix="train in float32, or in bfloat16 if the CPU has avx512_bf16 or amx_bf16 (Keras: "
        "set_dtype_policy('float32'))",
        seconds=share * unrecorded(profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="rule",
    )
