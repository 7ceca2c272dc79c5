"""Many small ops, the time of their calls, and the executor's time between them."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.op_causes import SHORT_SECONDS
from dltune.analysis.step_parts import op_seconds, part, recording, taken, unrecorded, wall, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain

# share of the wall time; smaller savings are within the noise of a step
SHARE = 0.05


@rule(
    "small-ops",
    "ops",
    summary="The step consists of many small ops, and the time between them is lost.",
    fix="Use fewer and larger ops (fusion, larger batches); XLA can merge ops (`dltune tune --only "
    "xla` measures it).",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find small ops. The cost is the time between ops; the highest gain includes the short ops."""
    if evidence.profile is None:
        return
    profile = evidence.profile.profile
    seconds = [
        taken(step, index, profile.ops)
        for step in profile.steps
        for index, node in enumerate(step.nodes)
        if node.op is not None and node.repeats > 0
    ]
    short = [duration for duration in seconds if duration < SHORT_SECONDS]
    whole = op_seconds(profile)
    step = unrecorded(profile)
    lost = (part(profile, "executor") * wall(profile) - recording(profile)) / step if step else 0
    within = sum(short) / whole * working(profile) if whole > 0 else 0.0
    if lost + within < SHARE:
        return
    yield Finding(
        title=f"{len(short):,} of {len(seconds):,} ops per step are shorter than "
        f"{SHORT_SECONDS * 1e6:.0f} us; together they take {within:.0%} of the wall time",
        evidence=f"no op runs for {lost:.0%} of the wall time, although the step does",
        fix="use fewer and larger ops (fusion, larger batches); XLA can merge ops, but its kernels "
        "for large ops are often slower on CPUs: `dltune tune --only xla` measures which is faster",
        seconds=lost * step,
        share=lost,
        gain=Gain(0.0, min(1.0, lost + within)),
        confidence="modelled",
        try_next=("jit_compile", "xla"),
    )
