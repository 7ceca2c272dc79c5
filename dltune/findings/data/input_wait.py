"""Steps that wait for their data, according to a profile."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice

# share of the wall time; smaller shares vary with other load of the machine
SHARE = 0.03


@rule(
    "input-wait",
    "data",
    summary="Steps wait for their data, according to a profile.",
    fix="Prefetch, and prepare several elements in parallel in the input pipeline.",
    frameworks=("tensorflow",),
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for data. The cost is the time of the waits. If the job was observed, other rules
    report the reason of the waits."""
    if evidence.profile is None or evidence.main:
        return
    profile = evidence.profile.profile
    share = part(profile, "input")
    if share < SHARE:
        return
    yield Finding(
        title=f"ops wait for data in {share:.0%} of the wall time",
        evidence="no other op ran during these waits",
        fix="prefetch and use parallel calls in the input pipeline, so that the next batch is "
        "prepared while a step runs (this needs idle CPUs)",
        seconds=share * unrecorded(profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
        apply=(Choice("input_prefetch", "auto"),),
        try_next=("input_prefetch", "input_threads"),
    )
