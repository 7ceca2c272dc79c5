"""The diagnosis of a job from its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from dltune import __version__
from dltune.analysis.roofline import Analysis
from dltune.analysis.step_parts import ENOUGH, is_compiled, measured, unmeasured, unrecorded
from dltune.base import documents
from dltune.findings import registry
from dltune.findings.evidence import Evidence
from dltune.findings.python.beside_steps import step_share
from dltune.findings.python_samples import MIN_SAMPLES, has_few_samples
from dltune.schemas import diagnosis as document
from dltune.schemas.diagnosis import Diagnosis, Finding, Gain, Observation, Step
from dltune.schemas.machine import Machine

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
    findings = registry.sort_by_cost(
        _scale_to_job(finding, evidence) for finding in registry.apply_rules(evidence)
    )
    names = {rule.name for rule in registry.rules() if rule.is_limitation}
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
