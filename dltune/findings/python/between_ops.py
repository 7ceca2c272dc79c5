"""The job's own Python code that runs while no op of PyTorch runs."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.step_parts import LONG, pauses, wall
from dltune.findings.evidence import Evidence
from dltune.findings.python.beside_steps import step_share
from dltune.findings.python_samples import MIN_SHARE, significant_share
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain


@rule(
    "between-ops",
    "python",
    summary="The job runs its own Python code while no op of PyTorch runs.",
    fix="Run this code less often, or move it into the workers of a DataLoader.",
    frameworks=("pytorch",),
    order=1,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find long pauses before ops. The cost is their sum. If the main thread was sampled, the cost
    is at most the share of samples in the job's own Python code, relative to the time in steps. A
    sample cannot distinguish an operator of PyTorch from the line that calls it."""
    profile = evidence.profile.profile if evidence.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    long_pauses = [pause for pause in pauses(profile) if pause.seconds >= LONG]
    share = sum(pause.seconds for pause in long_pauses) / whole
    lines = [line for step in profile.steps for line in step.lines]
    if evidence.python:
        samples = significant_share(evidence, "python")
        share = min(share, samples.share / (step_share(evidence) or 1.0) if samples else 0.0)
        lines = list(samples.lines) if samples else []
    if share < MIN_SHARE:
        return
    longest = max(long_pauses, key=lambda pause: pause.seconds)
    place = "between two steps" if longest.first else f"before {longest.before.name}"
    location = f"; Python was most often at {lines[0].where}" if lines else ""
    yield Finding(
        title=f"the job's own Python code runs for {share:.0%} of the time, while no op does",
        evidence=f"the longest pause, {longest.seconds * 1e3:.3g} ms, is {place}{location}",
        fix="run this code less often, or move it into the workers of a DataLoader",
        seconds=share * whole,
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )
