"""What was seen of a job, as a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from dltune import __version__
from dltune.analysis.figures import Analysis
from dltune.analysis.parts import ENOUGH, is_compiled, measured, unmeasured, unrecorded
from dltune.documents import diagnosis as document
from dltune.documents import files
from dltune.documents.diagnosis import Diagnosis, Step
from dltune.documents.finding import Finding, Gain
from dltune.documents.machine import Machine
from dltune.documents.observation import Observation
from dltune.findings import registry
from dltune.findings.looked import LEAST_LOOKS, few
from dltune.findings.python.beside_steps import at_steps
from dltune.findings.seen import Seen

# of a step; what costs less is not told
LEAST_SHARE = 0.05
MOST = 5
# rules on what could not be seen: no cause of anything
UNSEEN = frozenset({"missing-ranks", "unseen-background", "no-data-file"})


def diagnose(
    seen: Seen,
    subject: str,
    seconds: float,
    no_step: str | None,
    partial: str | None,
    machine: Machine | None = None,
) -> Diagnosis:
    """At most `MOST` findings, the most costly first; what is known to cost little is left out.
    `machine`: where the job was seen, as far as it is known."""
    found = registry.ordered(_of_all_time(one, seen) for one in registry.look(seen))
    costly = [
        finding
        for finding in found
        if finding.cause not in UNSEEN
        and finding.fix
        and (finding.share is None or finding.share >= LEAST_SHARE)
    ]
    return Diagnosis(
        schema=document.SCHEMA,
        created=files.now(),
        dltune=__version__,
        subject=subject,
        seconds=seconds,
        step=step(seen.profile, _ranks(seen)) if seen.profile else None,
        no_step=no_step,
        healthy=not costly and no_step is None and partial is None and not few(seen.observation),
        findings=tuple(costly[:MOST]),
        observation=seen.observation,
        unseen=(
            *(f"{one.title}: {one.fix}" for one in found if one.cause in UNSEEN and one.fix),
            *(_unmeasured(seen.profile) if seen.profile else ()),
            *(seen.observation.unseen if seen.observation else ()),
            *_too_few_looks(seen.observation),
            *(seen.io.unseen if seen.io else ()),
        ),
        partial=partial,
        machine=machine,
    )


def _too_few_looks(observation: Observation | None) -> Iterator[str]:
    if observation is None or not few(observation):
        return
    if observation.python:
        yield (
            f"Python: {observation.python.looks} samples of the main thread are too few, "
            f"{LEAST_LOOKS} are needed"
        )
    elif not observation.unseen:
        yield "Python: no sample of the main thread"


def _of_all_time(finding: Finding, seen: Seen) -> Finding:
    """What is a share of a step costs less of a job that is at its steps for a part of the time."""
    steps = at_steps(seen) if finding.seconds is not None else None
    if steps is None or finding.share is None:
        return finding
    gain = finding.gain and Gain(finding.gain.low * steps, finding.gain.high * steps)
    return msgspec.structs.replace(finding, share=finding.share * steps, gain=gain)


def _unmeasured(analysis: Analysis) -> Iterator[str]:
    if analysis.profile.partial:
        yield f"not all ops were measured: {analysis.profile.partial}"
    yield from unmeasured(analysis.profile)


def _ranks(seen: Seen) -> int:
    """How many share the node's cores."""
    main = seen.observation.main if seen.observation else None
    return main.ranks or 1 if main else 1


def step(analysis: Analysis, ranks: int = 1) -> Step | None:
    """The round of the steps, and its limit where so many ranks share the cores, or what is paid
    for of them."""
    profile = analysis.profile
    if not profile.steps:
        return None
    most = min(len(profile.machine.cores), profile.machine.quota or math.inf)
    cores = max(1, int(most // ranks))
    work = 0.0
    for figures in analysis.ops:
        if figures.cases:
            least = min(case.time.median * case.time.threads for case in figures.cases)
            work += least * figures.op.count
        elif is_compiled(figures.op):
            work += (figures.op.own or 0.0) * profile.settings.intra * figures.op.count
    return Step(
        seconds=unrecorded(profile),
        limit=work / cores if work > 0 and measured(profile) >= ENOUGH else None,
        cores=cores,
    )
