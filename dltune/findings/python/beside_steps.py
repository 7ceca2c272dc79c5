"""What a job does between some of its steps, such as rollouts, and what has no other name here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dltune.analysis.parts import wall
from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Observation
from dltune.findings.cores.neighbour import kept_waiting
from dltune.findings.looked import at_any
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# of the time; steps that differ, and recording them, may make up so much
LEAST = 0.2
# steps, to be of one kind
FEW = 20


@rule(
    "beside-steps",
    "python",
    summary="The job spends much of the time outside its steps, for example in rollouts.",
    fix="Do the work between steps less often, in larger batches, or in separate processes.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the watch without the steps that ended in it, each at the median, and without what
    other rules tell of."""
    steps = at_steps(seen)
    if steps is None or seen.observation is None or seen.profile is None:
        return
    share = 1 - steps - sum(one.share for one in at_any(seen, "saving", "validation"))
    # threads that wait in turn for one that waits for a CPU look busy: more than is known may wait
    if share < max(LEAST, _without_cpu(seen.observation)):
        return
    lines: dict[str, float] = defaultdict(float)
    for line in (line for one in at_any(seen, "python", "eager") for line in one.lines):
        lines[line.where] += line.share
    step, graphs = wall(seen.profile.profile), seen.observation.graphs
    assert graphs is not None
    seconds = _with_cpu(seen.observation)
    within = "of observation" if seconds == seen.observation.seconds else "in which it had a CPU"
    most = sorted(lines.items(), key=lambda line: -line[1])[:3]
    often = " and ".join(f"{where} ({part:.0%})" for where, part in most)
    yield Finding(
        title=f"the job spends {share:.0%} of the time outside its steps",
        evidence=f"{graphs.steps:,} steps of {step * 1e3:.3g} ms make up {steps:.0%} of the "
        f"{seconds:.0f} s "
        f"{within}" + (f"; Python was most often at {often}" if often else ""),
        fix="do the work between steps, for example rollouts, metrics or plots, less often, in "
        "larger batches, or in separate processes",
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )


def at_steps(seen: Seen) -> float | None:
    """The share of the watch that was steps, each at the median; None where they were not counted,
    or were few. What the job waits for others' CPUs, or stands still over its quota, makes some
    steps longer, but not their median: of that time as much was steps as of the rest."""
    graphs = seen.observation.graphs if seen.observation else None
    if seen.profile is None or seen.observation is None or graphs is None or graphs.steps < FEW:
        return None
    spent, seconds = graphs.steps * wall(seen.profile.profile), _with_cpu(seen.observation)
    return spent / seconds if spent < seconds else 1.0


def _with_cpu(observation: Observation) -> float:
    return observation.seconds * (1 - _without_cpu(observation))


def _without_cpu(observation: Observation) -> float:
    """The share of the time in which others had the CPUs, or the quota left none."""
    stood = observation.host.throttled or 0.0
    return 1 - (1 - kept_waiting(observation)) * (1 - stood)
