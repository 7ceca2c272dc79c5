"""Ops that Python runs one by one."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.python.looked import where
from dltune.findings.seen import Seen

SHARE = 0.2  # of the time


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost, at most: what Python takes between such ops."""
    observation = seen.observation
    graphs = observation.graphs if observation else None
    if observation is None or graphs is None or observation.python is None:
        return
    eager = min(1.0, graphs.eager / observation.seconds)
    shares = {share.activity: share for share in observation.python.shares}
    if eager < SHARE or "python" not in shares:
        return
    python = shares["python"]
    between = max(0.0, python.share - eager)
    yield Finding(
        "eager",
        "the job runs its ops eagerly, one by one",
        f"such ops took {eager:.0%} of the time, and Python between them {between:.0%}"
        f"{where(python)}",
        "put the training step into a tf.function (Keras: run_eagerly=False)",
        share=python.share,
        gain=Gain(0.0, between),
        sure="measured",
    )
