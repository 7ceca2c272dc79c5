"""Time between steps that no other rule explains, such as rollouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dltune.analysis.step_parts import wall
from dltune.findings.cores.neighbour import neighbour_wait
from dltune.findings.evidence import Evidence
from dltune.findings.python_samples import shares_of
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain, Observation

# share of the time; differing steps, and recording them, can take up to this share
MIN_SHARE = 0.2
# steps, for a meaningful median
MIN_STEPS = 20


@rule(
    "beside-steps",
    "python",
    summary="The job spends much of the time outside its steps, for example in rollouts.",
    fix="Do the work between steps less often, in larger batches, or in separate processes.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find time outside the steps. The cost is the observed time without the steps, each counted at
    the median, and without the time that other rules report."""
    steps = step_share(evidence)
    if steps is None or evidence.observation is None or evidence.profile is None:
        return
    share = 1 - steps - sum(each.share for each in shares_of(evidence, "saving", "validation"))
    # threads that wait for a thread without a CPU seem busy, so more threads can wait than is known
    if share < max(MIN_SHARE, _without_cpu(evidence.observation)):
        return
    lines: dict[str, float] = defaultdict(float)
    for line in (line for each in shares_of(evidence, "python", "eager") for line in each.lines):
        lines[line.where] += line.share
    step, graphs = wall(evidence.profile.profile), evidence.observation.graphs
    assert graphs is not None
    seconds = _with_cpu(evidence.observation)
    within = (
        "of observation" if seconds == evidence.observation.seconds else "in which it had a CPU"
    )
    top = sorted(lines.items(), key=lambda line: -line[1])[:3]
    places = " and ".join(f"{where} ({part:.0%})" for where, part in top)
    yield Finding(
        title=f"the job spends {share:.0%} of the time outside its steps",
        evidence=f"{graphs.steps:,} steps of {step * 1e3:.3g} ms make up {steps:.0%} of the "
        f"{seconds:.0f} s {within}" + (f"; Python was most often at {places}" if places else ""),
        fix="do the work between steps, for example rollouts, metrics or plots, less often, in "
        "larger batches, or in separate processes",
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )


def step_share(evidence: Evidence) -> float | None:
    """Return the share of the observed time that was spent in steps, each counted at the median;
    None if too few steps were counted. Waits for CPUs that others use, or for the quota, lengthen
    some steps but not the median. The share of steps in that time is the same as in the rest."""
    graphs = evidence.graphs
    if (
        evidence.profile is None
        or evidence.observation is None
        or graphs is None
        or graphs.steps < MIN_STEPS
    ):
        return None
    in_steps, seconds = (
        graphs.steps * wall(evidence.profile.profile),
        _with_cpu(evidence.observation),
    )
    return in_steps / seconds if in_steps < seconds else 1.0


def _with_cpu(observation: Observation) -> float:
    """Return the seconds of the observation in which the job had a CPU."""
    return observation.seconds * (1 - _without_cpu(observation))


def _without_cpu(observation: Observation) -> float:
    """Return the share of the time in which others used the CPUs, or the quota was used up."""
    throttled = observation.host.throttled or 0.0
    return 1 - (1 - neighbour_wait(observation)) * (1 - throttled)
