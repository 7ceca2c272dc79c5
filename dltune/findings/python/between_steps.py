"""The job's own Python code between the steps."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.findings.evidence import Evidence
from dltune.findings.python import denormals
from dltune.findings.python.script_share import script_share
from dltune.findings.python_samples import MIN_SHARE
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Line, Profile

# share of the samples; other lines are not named
LINE_SHARE = 0.2


@rule(
    "between-steps",
    "python",
    summary="The job runs its own Python code between the steps.",
    fix="Move this code into the step's tf.function, run it less often, or run it in another "
    "thread.",
    frameworks=("tensorflow",),
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find the job's own Python code. The cost is its share of the samples of the main thread,
    without waits for storage and for the interpreter's lock of a generator. Without samples, the
    cost is the time between executions."""
    if any(denormals.find(evidence)):
        return
    if script := script_share(evidence):
        python, share = script
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
    elif evidence.profile and evidence.python is None:
        yield from _profiled(evidence.profile.profile)


def _profiled(profile: Profile) -> Iterator[Finding]:
    share = part(profile, "python")
    if share < MIN_SHARE:
        return
    lines = _name_lines([line for step in profile.steps for line in step.lines])
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


def _name_lines(lines: list[Line]) -> str:
    by_share = sorted(lines, key=lambda line: line.share, reverse=True)
    return " and ".join(
        f"{line.where} ({line.share:.0%})" for line in by_share[:2] if line.share >= LINE_SHARE
    )
