"""Figures taken out of tensors in Python."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at_any, costs, runs_graphs, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "host-reads",
    "python",
    summary="Figures taken out of tensors in Python.",
    fix="",
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
        cause="host-reads",
        title=f"Python takes figures out of tensors between the steps in {share:.0%} of the time"
        if reads
        else f"Python runs single ops between the steps in {share:.0%} of the time",
        evidence=f"most often{where(most)}: "
        + (".numpy(), float() or a conversion" if reads else "each is called for itself"),
        fix="keep metrics in the step's tf.function, and read them every hundredth step"
        if reads
        else "do them in the step's tf.function, or in the input pipeline",
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )
