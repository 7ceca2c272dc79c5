"""Steps that wait for other processes."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part, unrecorded
from dltune.documents.finding import Finding, Gain
from dltune.documents.profile import Profile
from dltune.findings.ranks.spinning_thread import denied
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.frameworks.capabilities import framework
from dltune.words import size

# of the wall time: to remove it all would gain 1.11x, about what spreads allow to be seen
SHARE = 0.1


@rule(
    "communication-wait",
    "ops",
    summary="Ops wait for other processes of the job.",
    fix="Send fewer and larger messages, as `dltune plan buckets`, `dltune plan allreduce` or "
    "`dltune plan transfers` propose, or use larger batches.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Not where ranks are late because their own background threads keep their ops from the cores:
    that is told by itself."""
    share = part(seen.profile.profile, "communication") if seen.profile else 0.0
    if seen.profile is None or share < SHARE:
        return
    if seen.horovod and any(denied(one) > SHARE * one.wanting for one in seen.horovod.ranks):
        return
    yield Finding(
        title=f"ops wait for other processes for {share:.0%} of the wall time",
        evidence=_evidence(seen.profile.profile),
        fix="send gradients in fewer messages (`dltune plan buckets` chooses which gradients "
        "travel together), or use larger batches"
        if framework(seen.framework).exchanges_buckets
        else "send fewer and larger messages: use `dltune plan transfers` for parameter servers, "
        "or `dltune plan allreduce` for Horovod",
        seconds=share * unrecorded(seen.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )


def _evidence(profile: Profile) -> str:
    sums = [one for step in profile.steps for one in step.collectives]
    if not sums:
        return "no other op ran during that time"
    largest = max(sums, key=lambda one: one.bytes)
    return (
        f"the largest allreduce, {size(largest.bytes)}, takes {largest.took.median * 1e3:.3g} ms; "
        f"it takes {largest.took.min * 1e3:.3g} ms if no rank is late"
    )
