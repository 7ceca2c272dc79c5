"""The job's own Python between the steps."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part, unrecorded
from dltune.documents.finding import Finding, Gain
from dltune.documents.profile import Line, Profile
from dltune.findings.looked import LEAST
from dltune.findings.python import denormals
from dltune.findings.python.own_lines import own_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# of the looks at Python, to be worth naming
LINE_SHARE = 0.2


@rule(
    "between-steps",
    "python",
    summary="The job runs its own Python code between the steps.",
    fix="Move this code into the step's tf.function, run it less often, or run it in another "
    "thread.",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it, and at nothing that is known, without
    those in which it waited for storage, or for the lock of a generator's Python. Where the job was
    not looked at while it ran: the time between executions, whatever Python did in it."""
    if any(denormals.find(seen)):
        return
    if found := own_share(seen):
        python, share = found
        lines = " and ".join(f"{line.where} ({line.share:.0%})" for line in python.lines[:2])
        yield Finding(
            title=f"the job's own Python code runs between the steps for {share:.0%} of the time",
            evidence=f"Python was most often at {lines}"
            if lines
            else "no sample was at a line of the job's code",
            fix="move this code into the step's tf.function, run it less often, or run it in "
            "another thread",
            share=share,
            gain=Gain(0.0, share),
            confidence="measured",
        )
    elif seen.profile and (seen.observation is None or seen.observation.python is None):
        yield from _profiled(seen.profile.profile)


def _profiled(profile: Profile) -> Iterator[Finding]:
    share = part(profile, "python")
    if share < LEAST:
        return
    lines = _lines([line for step in profile.steps for line in step.lines])
    yield Finding(
        title=f"Python runs between the steps for {share:.0%} of the wall time",
        evidence=f"Python was most often at {lines}"
        if lines
        else "no op of a step ran during that time",
        fix="with Keras' fit, run several steps per execution (compile(steps_per_execution=...)); "
        "otherwise move the code into the step's tf.function, run it less often, or run it in "
        "another thread",
        seconds=share * unrecorded(profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
        try_next=("steps_per_execution",),
    )


def _lines(lines: list[Line]) -> str:
    ordered = sorted(lines, key=lambda line: line.share, reverse=True)
    return " and ".join(
        f"{line.where} ({line.share:.0%})" for line in ordered[:2] if line.share >= LINE_SHARE
    )
