"""Steps whose ops Python runs one by one."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import LEAST, at_any, often, runs_graphs
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

SHARE = 0.2  # of the time


@rule(
    "eager",
    "python",
    summary="Python runs the ops of a step one by one, because the step is no tf.function.",
    fix="Put the training step into a tf.function (Keras: run_eagerly=False).",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost, at most: what Python takes between such ops."""
    observation = seen.observation
    graphs = observation.graphs if observation else None
    if observation is None or graphs is None or runs_graphs(seen):
        return
    eager = min(1.0, graphs.eager / observation.seconds)
    at = at_any(seen, "eager", "python", "fit")
    if eager < SHARE or not at:
        return
    share = sum(one.share for one in at)
    between = max(0.0, share - eager)
    if between < LEAST:
        return
    yield Finding(
        title="the job runs its ops eagerly, one by one",
        evidence=f"no graph ran; single ops took {eager:.0%} of the time, and Python between them "
        f"{between:.0%}{often(max(at, key=lambda one: one.share))}",
        fix="put the training step into a tf.function (Keras: run_eagerly=False)",
        share=between,
        gain=Gain(0.0, between),
        confidence="measured",
    )
