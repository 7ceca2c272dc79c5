"""Graphs that TensorFlow traces again and again."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import activity_shares, at_line, significant_share
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain

# new graphs of one function during the observation; the last batch of an epoch, or validation, has
# another shape and is traced once more, but not three times
MIN_GRAPHS = 3
# share of new graphs that ran at most once: with fewer than the first share, the traced graphs are
# parts of a program that continue to run; with more than the second, all steps are first runs
MIN_ONCE, ALL_ONCE = 0.5, 0.9


@rule(
    "retracing",
    "python",
    summary="tf.function traces new graphs again and again.",
    fix="Pass tensors instead of Python numbers, keep shapes and dtypes the same, and create each "
    "tf.function once.",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find repeated tracing. The cost is its share of the samples of the main thread. If no step
    repeats, the fix also saves at most the time in steps, because the first run of a graph
    optimises and places it."""
    observation = evidence.observation
    graphs = evidence.graphs
    tracing = significant_share(evidence, "tracing")
    if observation is None or graphs is None or tracing is None or graphs.again < MIN_GRAPHS:
        return
    # once the steps are known, the job runs without recording, and the runs of graphs are unknown
    if evidence.profile is None and graphs.once < MIN_ONCE * graphs.traced:
        return
    steps = activity_shares(evidence).get("step")
    first_runs = (
        steps.share
        if steps and evidence.profile is None and graphs.once > ALL_ONCE * graphs.traced
        else 0
    )
    yield Finding(
        title=f"TensorFlow traces new graphs all the time: {graphs.traced} in "
        f"{observation.seconds:.0f} s",
        evidence=f"{graphs.again} of these graphs belong to one function; in {tracing.share:.0%} "
        f"of the samples, Python was tracing{at_line(tracing)}",
        fix="pass tensors instead of Python numbers, keep shapes and dtypes the same from call "
        "to call (pad batches, drop_remainder=True), create the tf.function once and not in a "
        "loop, or give it an input_signature or reduce_retracing=True",
        share=tracing.share,
        gain=Gain(0.8 * tracing.share, min(1.0, tracing.share + first_runs)),
        confidence="measured",
    )
