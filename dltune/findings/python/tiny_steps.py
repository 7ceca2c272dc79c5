"""Steps that are over sooner than what Keras or the call itself does around each."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part, unrecorded
from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Share
from dltune.documents.sections.settings import Choice
from dltune.findings.looked import at, shares, where
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# steps in one execution, after which little of Python's part is left
AT_ONCE = 64


@rule(
    "tiny-steps",
    "python",
    summary="Steps are so short that Keras' training loop, or the call of a step, takes much of "
    "the time.",
    fix="Run several steps per execution (compile(steps_per_execution=64)), or use larger batches.",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread in Keras' loop, and in no step; or, when it is
    more, the time between executions of which the looks name nothing else. A look does not tell the
    call of a step from the step."""
    fit = at(seen, "fit")
    if fit:
        share = max(fit.share, _between(seen) - sum(map(_else, shares(seen).values())))
        yield Finding(
            title=f"Keras' training loop takes {share:.0%} of the time, because the steps are "
            "short",
            evidence=f"in {fit.share:.0%} of the samples, the main thread was in fit but in no "
            f"step{_ops(seen)}",
            fix=f"run several steps per execution (compile(steps_per_execution={AT_ONCE})), or "
            "use larger batches; callbacks then run once per execution",
            share=share,
            gain=Gain(0.5 * share, share),
            confidence="measured",
            apply=(Choice("steps_per_execution", str(AT_ONCE)),),
            try_next=("steps_per_execution",),
        )
    elif call := at(seen, "call"):
        yield Finding(
            title=f"the calls of short steps take {call.share:.0%} of the time",
            evidence="the main thread was in TensorFlow's Python code before and after the step"
            f"{where(call)}{_ops(seen)}",
            fix="run several steps in one call (loop over batches in the tf.function: for batch "
            "in dataset), or use larger batches; pass tensors, because arrays are converted at "
            "each call",
            share=call.share,
            gain=Gain(0.0, call.share),
            confidence="measured",
        )


def _between(seen: Seen) -> float:
    return part(seen.profile.profile, "python") if seen.profile else 0.0


def _else(share: Share) -> float:
    return 0.0 if share.activity in ("fit", "step") else share.share


def _ops(seen: Seen) -> str:
    if seen.profile is None:
        return ""
    profile = seen.profile.profile
    return f"; ops run for {part(profile, 'ops') * unrecorded(profile) * 1e3:.3g} ms per step"
