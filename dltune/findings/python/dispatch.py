"""Findings about TensorFlow's Python code around ops and steps: eager ops, tracing, and calls.

Python can run the ops of a step one by one. TensorFlow can trace graphs again and again. Steps can
be shorter than the work of Keras, or of the call, around each step. Python can read values of
tensors between the steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import (
    MIN_SHARE,
    Evidence,
    activity_shares,
    at_line,
    is_significant,
    most_often,
    runs_graphs,
    shares_of,
    significant_share,
)
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain, Share
from dltune.schemas.settings import Choice

MIN_EAGER = 0.2  # of the time


@rule(
    "eager",
    "python",
    summary="Python runs the ops of a step one by one, because the step is no tf.function.",
    fix="Put the training step into a tf.function (Keras: run_eagerly=False).",
    frameworks=("tensorflow",),
)
def eager(evidence: Evidence) -> Iterator[Finding]:
    """Find eager steps. The cost is at most the Python time between the ops."""
    observation = evidence.observation
    graphs = evidence.graphs
    if observation is None or graphs is None or runs_graphs(evidence):
        return
    eager = min(1.0, graphs.eager / observation.seconds)
    shares = shares_of(evidence, "eager", "python", "fit")
    if eager < MIN_EAGER or not shares:
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
def retracing(evidence: Evidence) -> Iterator[Finding]:
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


# steps per execution, with which the share of Python is small
STEPS = 64


@rule(
    "tiny-steps",
    "python",
    summary="Steps are so short that Keras' training loop, or the call of a step, takes much of "
    "the time.",
    fix="Run several steps per execution (compile(steps_per_execution=64)), or use larger batches.",
    frameworks=("tensorflow",),
)
def tiny_steps(evidence: Evidence) -> Iterator[Finding]:
    """Find short steps. The cost is the share of samples in Keras' loop outside a step or, if that
    is more, the time between executions without the other sampled activities. A sample cannot
    distinguish the call of a step from the step."""
    fit = significant_share(evidence, "fit")
    if fit:
        share = max(
            fit.share,
            _between_executions(evidence)
            - sum(map(_other_activity, activity_shares(evidence).values())),
        )
        yield Finding(
            title=f"Keras' training loop takes {share:.0%} of the time, because the steps are "
            "short",
            evidence=f"in {fit.share:.0%} of the samples, the main thread was in fit but in no "
            f"step{_describe_ops(evidence)}",
            fix=f"run several steps per execution (compile(steps_per_execution={STEPS})), or "
            "use larger batches; callbacks then run once per execution",
            share=share,
            gain=Gain(0.5 * share, share),
            confidence="measured",
            apply=(Choice("steps_per_execution", str(STEPS)),),
            try_next=("steps_per_execution",),
        )
    elif call := significant_share(evidence, "call"):
        yield Finding(
            title=f"the calls of short steps take {call.share:.0%} of the time",
            evidence="the main thread was in TensorFlow's Python code before and after the step"
            f"{at_line(call)}{_describe_ops(evidence)}",
            fix="run several steps in one call (loop over batches in the tf.function: for batch "
            "in dataset), or use larger batches; pass tensors, because arrays are converted at "
            "each call",
            share=call.share,
            gain=Gain(0.0, call.share),
            confidence="measured",
        )


def _between_executions(evidence: Evidence) -> float:
    return part(evidence.profile.profile, "python") if evidence.profile else 0.0


def _other_activity(share: Share) -> float:
    return 0.0 if share.activity in ("fit", "step") else share.share


def _describe_ops(evidence: Evidence) -> str:
    if evidence.profile is None:
        return ""
    profile = evidence.profile.profile
    return f"; ops run for {part(profile, 'ops') * unrecorded(profile) * 1e3:.3g} ms per step"


@rule(
    "host-reads",
    "python",
    summary="Python reads values of tensors, or runs single ops, between the steps.",
    fix="Keep metrics in the step's tf.function, and read them every hundredth step.",
    frameworks=("tensorflow",),
)
def host_reads(evidence: Evidence) -> Iterator[Finding]:
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
