"""Figures taken out of tensors in Python."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at_any, costs, often, runs_graphs
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "host-reads",
    "python",
    summary="Python reads values of tensors, or runs single ops, between the steps.",
    fix="Keep metrics in the step's tf.function, and read them every hundredth step.",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it."""
    found = at_any(seen, "reading", "eager")
    share = sum(one.share for one in found)
    if not costs(seen, share) or not runs_graphs(seen):
        return
    most = max(found, key=lambda one: one.share)
    reads = most.activity == "reading"
    yield Finding(
        title=f"Python reads values of tensors between the steps for {share:.0%} of the time"
        if reads
        else f"Python runs single ops between the steps for {share:.0%} of the time",
        evidence=(
            "the job calls .numpy() or float(), or converts tensors otherwise"
            if reads
            else "each op is called by itself, outside the step's graph"
        )
        + often(most),
        fix="keep metrics in the step's tf.function, and read them every hundredth step"
        if reads
        else "move these ops into the step's tf.function, or into the input pipeline",
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )
