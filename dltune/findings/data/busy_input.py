"""Steps that wait for an input pipeline while no CPU is idle."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.data.waits import IDLE, preparation_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "busy-input",
    "data",
    summary="Steps wait for the input pipeline, and no CPU is idle.",
    fix="Prepare less in each step: decode to the needed size, cache, or prepare the data once.",
    frameworks=("tensorflow",),
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for preparation. The cost is at most the time for which steps waited for data."""
    observation = evidence.observation
    main = evidence.main
    share = preparation_share(evidence)
    if observation is None or main is None or share is None or observation.idle(main) >= IDLE:
        return
    yield Finding(
        title=f"steps wait for the input pipeline {share:.0%} of the time, and no CPU is idle",
        evidence=f"the job used {main.cpu:.2f} of {observation.room(main):g} CPUs, and preparing "
        "data takes them from the steps",
        fix="prepare less in each step: decode to the needed size, cache() data that repeats in "
        "each epoch, or prepare the data once and store it in files",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        try_next=("input_threads",),
    )
