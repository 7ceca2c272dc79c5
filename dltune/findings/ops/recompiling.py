"""Clusters that XLA compiles again and again."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain

MIN_COMPILATIONS = 3  # during the observation
SHARE = 0.05  # of the time


@rule(
    "recompiling",
    "ops",
    summary="XLA compiles the same code again and again, for new input shapes.",
    fix="Keep the shapes of batches the same (pad them to a few lengths, drop_remainder=True), or "
    "remove jit_compile=True.",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find compilations. The cost is the time of the first runs with inputs of a new shape."""
    observation = evidence.observation
    graphs = evidence.graphs
    if observation is None or graphs is None or graphs.compilations < MIN_COMPILATIONS:
        return
    share = min(1.0, graphs.compiling / observation.seconds)
    if share < SHARE:
        return
    yield Finding(
        title=f"XLA compiles again and again: {graphs.compilations} times in "
        f"{observation.seconds:.0f} s",
        evidence="XLA compiles again if the shapes of inputs change; the runs that compiled took "
        f"{share:.0%} of the time",
        fix="keep the shapes of batches the same (pad them to a few lengths, "
        "drop_remainder=True), or remove jit_compile=True",
        share=share,
        gain=Gain(0.8 * share, share),
        confidence="measured",
    )
