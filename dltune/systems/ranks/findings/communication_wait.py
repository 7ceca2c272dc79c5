"""Steps that wait for other processes of the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.base.formatting import size
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Profile
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.findings.spinning_thread import denied_cores

# share of the wall time; its removal gains 1.11x, about the spread of step times
SHARE = 0.1


@rule(
    "communication-wait",
    "ranks",
    summary="Ops wait for other processes of the job.",
    fix="Send fewer and larger messages, as `dltune plan buckets`, `dltune plan allreduce` or "
    "`dltune plan transfers` propose, or use larger batches.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits. If ranks are late because their background threads use the cores of their ops,
    the rule `spinning-thread` reports that instead."""
    share = part(evidence.profile.profile, "communication") if evidence.profile else 0.0
    if evidence.profile is None or share < SHARE:
        return
    if any(denied_cores(rank) > SHARE * rank.wanting for rank in report.ranks(evidence)):
        return
    yield Finding(
        title=f"ops wait for other processes for {share:.0%} of the wall time",
        evidence=_describe(evidence.profile.profile),
        fix="send gradients in fewer messages (`dltune plan buckets` chooses which gradients "
        "travel together), or use larger batches"
        if framework(evidence.framework).exchanges_buckets
        else "send fewer and larger messages: use `dltune plan transfers` for parameter servers, "
        "or `dltune plan allreduce` for Horovod",
        seconds=share * unrecorded(evidence.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )


def _describe(profile: Profile) -> str:
    collectives = [each for step in profile.steps for each in step.collectives]
    if not collectives:
        return "no other op ran during that time"
    largest = max(collectives, key=lambda each: each.bytes)
    return (
        f"the largest allreduce, {size(largest.bytes)}, takes {largest.took.median * 1e3:.3g} ms; "
        f"it takes {largest.took.min * 1e3:.3g} ms if no rank is late"
    )
