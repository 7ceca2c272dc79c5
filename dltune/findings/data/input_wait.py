"""Steps that wait for their data, as far as a profile tells it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part, unrecorded
from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# of the wall time; a few percent come and go with the rest of the machine
SHARE = 0.03


@rule(
    "input-wait",
    "data",
    summary="Steps wait for their data, according to a profile.",
    fix="Prefetch, and prepare several elements in parallel in the input pipeline.",
    frameworks=("tensorflow",),
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time that steps waited. Where the job was looked at while it ran, other rules
    tell why they did."""
    if seen.profile is None or (seen.observation and seen.observation.main):
        return
    profile = seen.profile.profile
    share = part(profile, "input")
    if share < SHARE:
        return
    yield Finding(
        title=f"ops wait for data in {share:.0%} of the wall time",
        evidence="no other op ran during these waits",
        fix="prefetch and use parallel calls in the input pipeline, so that the next batch is "
        "prepared "
        "while a step runs (this needs idle CPUs)",
        seconds=share * unrecorded(profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
        apply=(Choice("input_prefetch", "auto"),),
        try_next=("input_prefetch", "input_threads"),
    )
