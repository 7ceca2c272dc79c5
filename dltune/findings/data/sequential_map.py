"""Steps that wait for an input pipeline that uses one thread."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.data.waits import IDLE, preparation_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice


@rule(
    "sequential-map",
    "data",
    summary="Steps wait for an input pipeline that uses one thread.",
    fix="Use map(..., num_parallel_calls=tf.data.AUTOTUNE), and prefetch at the end.",
    frameworks=("tensorflow",),
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for preparation. The cost is the time of the waits while CPUs were idle."""
    observation = evidence.observation
    main = evidence.main
    share = preparation_share(evidence)
    if observation is None or main is None or share is None:
        return
    idle = observation.idle(main)
    if idle < IDLE:
        return
    yield Finding(
        title=f"steps wait for the input pipeline {share:.0%} of the time",
        evidence=f"the job used {main.cpu:.2f} of {observation.room(main):g} CPUs, and its "
        "pipeline prepares one element after the other",
        fix="use map(..., num_parallel_calls=tf.data.AUTOTUNE), and .prefetch(tf.data.AUTOTUNE) at "
        "the end; cache() data that repeats in each epoch",
        share=share,
        gain=Gain(min(share, 0.5 * idle), share),
        confidence="modelled",
        apply=(Choice("input_prefetch", "auto"),),
        try_next=("input_prefetch", "input_threads"),
    )
