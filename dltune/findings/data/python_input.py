"""Steps that wait for a Python generator."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.data.waits import MIN_GENERATOR, MIN_WAIT, input_share
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import lock_share
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "python-input",
    "data",
    summary="Steps wait for a Python generator.",
    fix="Prepare the data with tf.data ops or in several processes, or let the generator return "
    "whole batches.",
    frameworks=("tensorflow",),
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for a generator. The cost is the time of these waits and of waits for its lock."""
    python = evidence.python
    share = input_share(evidence)
    if python is None or share < MIN_WAIT or python.generator < MIN_GENERATOR:
        return
    share = min(1.0, share + lock_share(evidence))
    location = f" at {python.generator_lines[0].where}" if python.generator_lines else ""
    yield Finding(
        title=f"steps wait for a Python generator {share:.0%} of the time",
        evidence=f"the generator ran in {python.generator:.0%} of samples{location}, one element "
        "at a time, holding the interpreter's lock",
        fix="prepare the data with tf.data's own ops, or in several processes; or let the "
        "generator return whole batches, and prefetch",
        share=share,
        gain=Gain(0.5 * share, share),
        confidence="measured",
        try_next=("input_prefetch",),
    )
