"""Graphs that are traced again and again."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, shares, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# new graphs of one function during the watch: an epoch's last batch, or validation, is another one
# of another shape, but no third
MANY = 3
# of new graphs, those that ran once at most: a program of several parts traces some that go on to
# run, and where nearly all are such, what runs is new
AGAIN, FIRST = 0.5, 0.9


@rule(
    "retracing",
    "python",
    summary="tf.function traces new graphs again and again.",
    fix="Pass tensors instead of Python numbers, keep shapes and dtypes the same, and create each "
    "tf.function once.",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread tracing. Where no step was found to repeat,
    the cure saves at most those in steps, too: a graph's first run optimises and places it."""
    observation = seen.observation
    graphs = observation.graphs if observation else None
    tracing = at(seen, "tracing")
    if observation is None or graphs is None or tracing is None or graphs.again < MANY:
        return
    # once its steps are known the job runs unrecorded: then nobody knows what ran
    if seen.profile is None and graphs.once < AGAIN * graphs.traced:
        return
    steps = shares(seen).get("step")
    first = (
        steps.share if steps and seen.profile is None and graphs.once > FIRST * graphs.traced else 0
    )
    yield Finding(
        title=f"TensorFlow traces new graphs all the time: {graphs.traced} in "
        f"{observation.seconds:.0f} s",
        evidence=f"{graphs.again} of these graphs belong to one function; in {tracing.share:.0%} "
        f"of the samples, Python was tracing{where(tracing)}",
        fix="pass tensors instead of Python numbers, keep shapes and dtypes the same from call "
        "to call (pad batches, drop_remainder=True), create the tf.function once and not in a "
        "loop, or give it an input_signature or reduce_retracing=True",
        share=tracing.share,
        gain=Gain(0.8 * tracing.share, min(1.0, tracing.share + first)),
        confidence="measured",
    )
