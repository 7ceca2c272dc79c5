"""Steps that wait for a Python generator."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.data.waits import GENERATES, WAITS, input_share
from dltune.findings.looked import lock_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "python-input",
    "data",
    summary="Steps wait for a Python generator.",
    fix="Prepare the data with tf.data ops or in several processes, or let the generator return "
    "whole batches.",
    frameworks=("tensorflow",),
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the time that steps waited for data, and for the generator's lock."""
    python = seen.observation.python if seen.observation else None
    share = input_share(seen)
    if python is None or share < WAITS or python.generator < GENERATES:
        return
    share = min(1.0, share + lock_share(seen))
    at = f" at {python.generator_lines[0].where}" if python.generator_lines else ""
    yield Finding(
        title=f"steps wait for a Python generator {share:.0%} of the time",
        evidence=f"the generator ran in {python.generator:.0%} of samples{at}, one element at a "
        "time, "
        "holding the interpreter's lock",
        fix="prepare the data with tf.data's own ops, or in several processes; or let the "
        "generator "
        "return whole batches, and prefetch",
        share=share,
        gain=Gain(0.5 * share, share),
        confidence="measured",
        try_next=("input_prefetch",),
    )
