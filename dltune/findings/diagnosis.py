"""The diagnosis of a job from its evidence, with its texts and a plan of its fixes.

Texts describe the cost and the expected gain of findings, the limit of a step, and a job without
findings. The fixes that dltune can apply become a section of a plan.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dltune import __version__
from dltune.analysis.roofline import Analysis
from dltune.analysis.step_parts import ENOUGH, is_compiled, measured, unmeasured, unrecorded
from dltune.base import documents
from dltune.base.formatting import visible
from dltune.findings.evidence import MIN_SAMPLES, Evidence, has_few_samples
from dltune.findings.python.between_steps import step_share
from dltune.findings.rule import apply_rules, rules, sort_by_cost
from dltune.schemas import diagnosis as document
from dltune.schemas.diagnosis import Diagnosis, Finding, Gain, Observation, Step
from dltune.schemas.machine import Machine
from dltune.schemas.settings import Choice, SettingsPlan

# share of the time; smaller costs are not reported
MIN_SHARE = 0.05
MAX_FINDINGS = 5


def diagnose(
    evidence: Evidence,
    subject: str,
    seconds: float,
    no_step: str | None,
    partial: str | None,
    machine: Machine | None = None,
) -> Diagnosis:
    """Return a diagnosis of at most `MAX_FINDINGS` findings, the most costly first, without those
    of a known low cost. `machine`: the machine of the job, if it is known."""
    findings = sort_by_cost(_scale_to_job(finding, evidence) for finding in apply_rules(evidence))
    names = {rule.name for rule in rules() if rule.is_limitation}
    limitations = [each for each in findings if each.cause in names]
    costly = [
        finding
        for finding in findings
        if finding.cause not in names
        and finding.fix
        and (finding.share is None or finding.share >= MIN_SHARE)
    ]
    return Diagnosis(
        schema=document.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        subject=subject,
        seconds=seconds,
        step=summarize_step(evidence.profile, _ranks(evidence)) if evidence.profile else None,
        no_step=no_step,
        healthy=not costly
        and no_step is None
        and partial is None
        and not has_few_samples(evidence.observation),
        findings=tuple(costly[:MAX_FINDINGS]),
        observation=evidence.observation,
        unseen=(
            *(f"{each.title}: {each.fix}" for each in limitations if each.fix),
            *(_describe_unmeasured(evidence.profile) if evidence.profile else ()),
            *(evidence.observation.unseen if evidence.observation else ()),
            *_describe_samples(evidence.observation),
            *(evidence.io.unseen if evidence.io else ()),
        ),
        partial=partial,
        machine=machine,
    )


def _describe_samples(observation: Observation | None) -> Iterator[str]:
    if observation is None or not has_few_samples(observation):
        return
    if observation.python:
        yield (
            f"Python: {observation.python.looks} samples of the main thread are too few, "
            f"{MIN_SAMPLES} are needed"
        )
    elif not observation.unseen:
        yield "Python: no sample of the main thread"


def _scale_to_job(finding: Finding, evidence: Evidence) -> Finding:
    """Convert a share of the steps into a share of the job's time."""
    steps = step_share(evidence) if finding.seconds is not None else None
    if steps is None or finding.share is None:
        return finding
    gain = finding.gain and Gain(finding.gain.low * steps, finding.gain.high * steps)
    return msgspec.structs.replace(finding, share=finding.share * steps, gain=gain)


def _describe_unmeasured(analysis: Analysis) -> Iterator[str]:
    if analysis.profile.partial:
        yield f"not all ops were measured: {analysis.profile.partial}"
    yield from unmeasured(analysis.profile)


def _ranks(evidence: Evidence) -> int:
    """Return the number of ranks that share the cores of the node."""
    main = evidence.main
    return main.ranks or 1 if main else 1


def summarize_step(analysis: Analysis, ranks: int = 1) -> Step | None:
    """Return the time of a step, and its limit if `ranks` share the cores within the quota; None
    if the profile has no steps."""
    profile = analysis.profile
    if not profile.steps:
        return None
    available = min(len(profile.machine.cores), profile.machine.quota or math.inf)
    cores = max(1, int(available // ranks))
    work = 0.0
    for figures in analysis.ops:
        if figures.cases:
            lowest = min(case.time.median * case.time.threads for case in figures.cases)
            work += lowest * figures.op.count
        elif is_compiled(figures.op):
            work += (figures.op.own or 0.0) * profile.settings.intra * figures.op.count
    return Step(
        seconds=unrecorded(profile),
        limit=work / cores if work > 0 and measured(profile) >= ENOUGH else None,
        cores=cores,
    )


# Texts of a diagnosis

NO_CAUSE = f"no cause costs more than {MIN_SHARE:.0%} of the time"
# share of the speed that the cores allow; above it, threads and settings gain little
NEAR = 0.8
# share of the time; a smaller gain counts as none
MIN_GAIN = 0.005
# a word in lower case, but not a name or code
_WORD = re.compile(r"(?!dltune\b|py-spy\b)[a-z]+(-[a-z]+)*'?[,:;.]?( |$)")

_CONFIDENCE = {
    "measured": "measured in this job",
    "modelled": "modelled from measurements of this job",
    "rule": "seen in other jobs",
}


def format_cost(finding: Finding) -> str:
    """Return the cost, or an empty text if it is unknown."""
    if finding.share is None:
        return ""
    seconds = f" ({finding.seconds * 1e3:.3g} ms per step)" if finding.seconds else ""
    return f"{finding.share:.0%} of the time{seconds}"


def format_gain(finding: Finding) -> str:
    """Return the expected gain, or an empty text if it is unknown."""
    if finding.gain is None:
        return ""
    low, high = finding.gain.low, finding.gain.high
    lowest = f"{1 / (1 - low):.2f}x" if low < 1 else "many times"
    highest = f"{1 / (1 - high):.2f}x" if high < 1 else "many times"
    if low < MIN_GAIN:
        highest = f"up to {highest}"
    elif lowest != highest:
        highest = f"{lowest} to {highest}"
    return f"{highest} as fast ({_CONFIDENCE[finding.confidence]})"


def format_limit(step: Step) -> str:
    """Return the time of a step and its limit."""
    takes = f"a step takes {step.seconds * 1e3:.4g} ms"
    if step.limit is None or step.seconds <= 0:
        return f"{takes}; too few of its ops were measured to say how fast it could be"
    cores = f"{step.cores} cores" if step.cores > 1 else "one core"
    return (
        f"{takes}; if its ops kept {cores} busy all the time, it would take {step.limit * 1e3:.4g} "
        f"ms, so it runs at {step.limit / step.seconds:.0%} of the possible speed"
    )


def suggest_next(diagnosis: Diagnosis) -> str:
    """Return a way to make a healthy job faster; an empty text if its step is near the limit, or if
    the limit is unknown."""
    step = diagnosis.step
    if not diagnosis.healthy or step is None or step.limit is None:
        return ""
    if step.limit >= NEAR * step.seconds:
        return ""
    return (
        "to go further, measure settings on the job with `dltune tune`, or choose a thread count "
        "for each op with `dltune profile` and `dltune plan threads`"
    )


def next_step(diagnosis: Diagnosis, job: Sequence[str], plan: Path | None) -> str:
    """The next command to type, or an empty string. `plan`: the plan that was written."""
    if not diagnosis.findings:
        return to_sentence(words) if (words := suggest_next(diagnosis)) else ""
    command = visible(shlex.join(job), 4000) if job else "CMD"
    if plan:
        return f"Next: dltune run --plan {shlex.quote(str(plan))} -- {command}"
    if any(finding.apply for finding in diagnosis.findings):
        return (
            "Next: repeat with --plan plan.json, then start the job with "
            f"`dltune run --plan plan.json -- {command}`."
        )
    if names := dict.fromkeys(name for one in diagnosis.findings for name in one.try_next):
        return (
            f"Next: `dltune tune --only {','.join(names)} -- {command}` measures these settings "
            "on the job."
        )
    return "Next: apply the first fix, then run `dltune diagnose` again."


def to_sentence(text: str) -> str:
    """Add a full stop, and a capital letter unless the first word is a name or code."""
    return capitalize(text) + ("" if text.endswith(".") else ".")


def capitalize(text: str) -> str:
    """Start a text with a capital letter unless its first word is a name or code."""
    return text[:1].upper() + text[1:] if _WORD.match(text) else text


# The fixes that dltune can apply, as a section of a plan
def make_fix_plan(diagnosis: Diagnosis, job: Sequence[str]) -> SettingsPlan | None:
    """Return a plan with the settings that findings apply; None if there are none. If findings
    choose different values of a setting, the most costly finding decides. No setting changes
    results by more than rounding."""
    chosen: dict[str, Choice] = {}
    for finding in diagnosis.findings:
        for choice in finding.apply:
            chosen.setdefault(choice.setting, choice)
    if not chosen:
        return None
    return SettingsPlan(
        command=tuple(job),
        chosen=tuple(chosen.values()),
        kind="rounding",
        whole=None,
        recommended=None,
        effects=(),
        untried=(),
        seconds=diagnosis.seconds,
        partial=None,
        overrides=True,
    )
