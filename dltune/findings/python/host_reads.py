"""Values of tensors that Python reads between the steps."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import is_significant, most_often, runs_graphs, shares_of
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "host-reads",
    "python",
    summary="Python reads values of tensors, or runs single ops, between the steps.",
    fix="Keep metrics in the step's tf.function, and read them every hundredth step.",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find reading of tensors and single ops. The cost is the share of samples in them."""
    shares = shares_of(evidence, "reading", "eager")
    share = sum(each.share for each in shares)
    if not is_significant(evidence, share) or not runs_graphs(evidence):
        return
    largest = max(shares, key=lambda each: each.share)
    is_reading = largest.activity == "reading"
    yield Finding(
        title=f"Python reads values of tensors between the steps for {share:.0%} of the time"
        if is_reading
        else f"Python runs single ops between the steps for {share:.0%} of the time",
        evidence=(
            "the job calls .numpy() or float(), or converts tensors otherwise"
            if is_reading
            else "each op is called by itself, outside the step's graph"
        )
        + most_often(largest),
        fix="keep metrics in the step's tf.function, and read them every hundredth step"
        if is_reading
        else "move these ops into the step's tf.function, or into the input pipeline",
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )
