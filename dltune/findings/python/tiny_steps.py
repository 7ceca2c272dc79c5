"""Steps that are shorter than the work of Keras, or of the call, around each step."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import activity_shares, at_line, significant_share
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain, Share
from dltune.schemas.settings import Choice

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
def find(evidence: Evidence) -> Iterator[Finding]:
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
