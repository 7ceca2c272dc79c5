"""Findings about the time outside ops: Python code, validation, checkpoints, and queues.

The job's own Python code can run between the steps, or while no op of PyTorch runs. Validation can
take a large part of the time. The job can save checkpoints too often. Steps can wait for another
thread or process of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dltune.analysis.step_parts import LONG, part, pauses, unrecorded, wall
from dltune.findings.cores import advised, neighbour_wait
from dltune.findings.evidence import (
    MIN_SHARE,
    Evidence,
    at_line,
    script_share,
    shares_of,
    significant_share,
)
from dltune.findings.python.denormals import denormals
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Finding, Gain, Observation
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
def between_steps(evidence: Evidence) -> Iterator[Finding]:
    """Find the job's own Python code. The cost is its share of the samples of the main thread,
    without waits for storage and for the interpreter's lock of a generator. Without samples, the
    cost is the time between executions."""
    if any(denormals(evidence)):
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


# share of the time; differing steps, and recording them, can take up to this share
MIN_BESIDE_STEPS = 0.2
# steps, for a meaningful median
MIN_STEPS = 20


@rule(
    "beside-steps",
    "python",
    summary="The job spends much of the time outside its steps, for example in rollouts.",
    fix="Do the work between steps less often, in larger batches, or in separate processes.",
)
def beside_steps(evidence: Evidence) -> Iterator[Finding]:
    """Find time between steps that no other rule explains, such as rollouts. The cost is the
    observed time without the steps, each counted at the median, and without the time that other
    rules report."""
    steps = step_share(evidence)
    if steps is None or evidence.observation is None or evidence.profile is None:
        return
    share = 1 - steps - sum(each.share for each in shares_of(evidence, "saving", "validation"))
    # threads that wait for a thread without a CPU seem busy, so more threads can wait than is known
    if share < max(MIN_BESIDE_STEPS, _without_cpu(evidence.observation)):
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


@rule(
    "between-ops",
    "python",
    summary="The job runs its own Python code while no op of PyTorch runs.",
    fix="Run this code less often, or move it into the workers of a DataLoader.",
    frameworks=("pytorch",),
    order=1,
)
def between_ops(evidence: Evidence) -> Iterator[Finding]:
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


MIN_VALIDATION = 0.2  # of the time; a smaller share is a normal cost of validation


@rule(
    "validation",
    "python",
    summary="Validation takes a large part of the time.",
    fix="Validate less often, on a part of the data, or in larger batches.",
)
def validation(evidence: Evidence) -> Iterator[Finding]:
    """Find frequent validation. The cost is its share of the samples of the main thread. The lowest
    gain is zero, because the observed validation can be the only one for a long time."""
    validating = significant_share(evidence, "validation")
    if validating is None or evidence.observation is None or validating.share < MIN_VALIDATION:
        return
    options = advised(evidence.framework).validation_options
    seconds = evidence.observation.seconds
    yield Finding(
        title=f"validation takes {validating.share:.0%} of the time ({seconds:.0f} s of "
        "observation)",
        evidence=f"in {validating.share:.0%} of the samples, Python was "
        f"validating{at_line(validating)}",
        fix="if validation is frequent, validate less often, on a part of the data, or in larger "
        f"batches{f' ({options})' if options else ''}",
        share=validating.share,
        gain=Gain(0.0, validating.share),
        confidence="modelled",
    )


@rule(
    "checkpoints",
    "python",
    summary="The job saves checkpoints too often.",
    fix="Save less often (every few minutes, or once per epoch), or in the background.",
)
def checkpoints(evidence: Evidence) -> Iterator[Finding]:
    """Find frequent saving. The cost is its share of the samples of the main thread. The lowest
    gain is zero, because the observed checkpoint can be the only one for a long time."""
    saving = significant_share(evidence, "saving")
    if saving is None or evidence.observation is None:
        return
    seconds = evidence.observation.seconds
    background = framework(evidence.framework).background_save
    yield Finding(
        title=f"saving takes {saving.share:.0%} of the time ({seconds:.0f} s of observation)",
        evidence=f"in {saving.share:.0%} of the samples, Python was saving{at_line(saving)} and no "
        "step ran",
        fix="if saving is frequent, save every few minutes or once per epoch, or in the background"
        + (f" ({background})" if background else ""),
        share=saving.share,
        gain=Gain(0.0, saving.share),
        confidence="modelled",
    )


@rule(
    "queue-wait",
    "python",
    summary="Steps wait for another thread or process of the job.",
    fix="Let more workers prepare what the steps need (processes for Python code), and let the "
    "queue hold several batches.",
)
def queue_wait(evidence: Evidence) -> Iterator[Finding]:
    """Find waits for a queue. The cost is their share of the samples of the main thread."""
    queue = significant_share(evidence, "queue")
    if queue:
        yield Finding(
            title=f"the job waits for another of its threads or processes for {queue.share:.0%} "
            "of the time",
            evidence=f"in {queue.share:.0%} of the samples, the main thread waited for a "
            f"queue{at_line(queue)} and no step ran",
            fix="let more workers prepare what the steps need (processes for Python code), and "
            "let the queue hold several batches",
            share=queue.share,
            gain=Gain(0.0, queue.share),
            confidence="measured",
        )
