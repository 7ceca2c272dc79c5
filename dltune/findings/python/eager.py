"""Steps whose ops Python runs one by one."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import MIN_SHARE, most_often, runs_graphs, shares_of
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain

SHARE = 0.2  # of the time


@rule(
    "eager",
    "python",
    summary="Python runs the ops of a step one by one, because the step is no tf.function.",
    fix="Put the training step into a tf.function (Keras: run_eagerly=False).",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find eager steps. The cost is at most the Python time between the ops."""
    observation = evidence.observation
    graphs = evidence.graphs
    if observation is None or graphs is None or runs_graphs(evidence):
        return
    eager = min(1.0, graphs.eager / observation.seconds)
    shares = shares_of(evidence, "eager", "python", "fit")
    if eager < SHARE or not shares:
        return
    between = max(0.0, sum(each.share for each in shares) - eager)
    if between < MIN_SHARE:
        return
    yield Finding(
        title="the job runs its ops eagerly, one by one",
        evidence=f"no graph ran; single ops took {eager:.0%} of the time, and Python between them "
        f"{between:.0%}{most_often(max(shares, key=lambda each: each.share))}",
        fix="put the training step into a tf.function (Keras: run_eagerly=False)",
        share=between,
        gain=Gain(0.0, between),
        confidence="measured",
    )
