"""Python of the job's own while no op of PyTorch's runs."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import wall
from dltune.analysis.pauses import LONG, pauses
from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import LEAST, at
from dltune.findings.python.beside_steps import at_steps
from dltune.findings.rule import rule
from dltune.findings.seen import Seen


@rule(
    "between-ops",
    "python",
    summary="The job runs its own Python code while no op of PyTorch runs.",
    fix="Run this code less often, or move it into the workers of a DataLoader.",
    frameworks=("pytorch",),
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the long pauses before ops; where the job was looked at, no more than the looks
    that found the main thread in Python of the job's own, of all at steps. A look does not tell an
    operator of PyTorch's from the line that it is on."""
    profile = seen.profile.profile if seen.profile else None
    if profile is None or not (whole := wall(profile)):
        return
    long = [pause for pause in pauses(profile) if pause.seconds >= LONG]
    share = sum(pause.seconds for pause in long) / whole
    lines = [line for step in profile.steps for line in step.lines]
    if seen.observation and seen.observation.python:
        looks = at(seen, "python")
        share = min(share, looks.share / (at_steps(seen) or 1.0) if looks else 0.0)
        lines = list(looks.lines) if looks else []
    if share < LEAST:
        return
    most = max(long, key=lambda pause: pause.seconds)
    place = "between two steps" if most.first else f"before {most.before.name}"
    often = f"; Python was most often at {lines[0].where}" if lines else ""
    yield Finding(
        title=f"the job's own Python code runs for {share:.0%} of the time, while no op does",
        evidence=f"the longest pause, {most.seconds * 1e3:.3g} ms, is {place}{often}",
        fix="run this code less often, or move it into the workers of a DataLoader",
        seconds=share * whole,
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )
