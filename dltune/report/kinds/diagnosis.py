"""A diagnosis: the findings in order of cost, and the observation of the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.diagnosis import Diagnosis, load
from dltune.documents.observation import Observation
from dltune.findings.finding_text import NO_CAUSE, format_limit, suggest_next, to_sentence
from dltune.machine import cpulist
from dltune.report.charts.marks import captioned, divided
from dltune.report.markup import Markup, joined, tag
from dltune.report.section import Context, Loaded, Section, Shown, findings
from dltune.report.table import html
from dltune.tables import Key, Table, columns
from dltune.views import Headline

__all__ = ["load", "show"]

_ACTIVITIES = {
    "step": "running a step",
    "tracing": "tracing or compiling a graph",
    "input": "waiting for the next batch",
    "queue": "waiting for another thread or process of the job",
    "reading": "reading values of tensors",
    "eager": "running a single op",
    "saving": "saving a checkpoint",
    "validation": "validating",
    "fit": "in Keras' training loop",
    "call": "calling a step",
    "python": "running the job's own Python code",
}


def show(loaded: Loaded, _: Context) -> Shown:
    diagnosis = loaded.document
    assert isinstance(diagnosis, Diagnosis)
    at = loaded.prefix
    sections = [Section(f"{at}-findings", "Diagnosis", joined([*_findings(diagnosis)]))]
    if seen := diagnosis.observation:
        sections.append(Section(f"{at}-seen", "Observation of the job", joined([*_seen(seen, at)])))
    first = diagnosis.findings[0].title if diagnosis.findings else NO_CAUSE
    return Shown(
        title=f"Diagnosis {loaded.path.name}",
        head=[
            ("subject", diagnosis.subject),
            ("made", f"{diagnosis.created}, dltune {diagnosis.dltune}"),
        ],
        sections=sections,
        headlines=[Headline(0, to_sentence(first))],
        remarks=[
            *(
                []
                if diagnosis.partial is None
                else [f"The diagnosis is incomplete: {diagnosis.partial}."]
            ),
            *map(to_sentence, diagnosis.unseen),
        ],
    )


def _findings(diagnosis: Diagnosis) -> Iterator[Markup]:
    if diagnosis.step:
        yield tag("p", to_sentence(format_limit(diagnosis.step)))
    elif diagnosis.no_step:
        yield tag("p", to_sentence(f"no step was measured: {diagnosis.no_step}"))
    if diagnosis.findings:
        yield findings(diagnosis.findings)
    else:
        yield tag("p", to_sentence(NO_CAUSE))
    if words := suggest_next(diagnosis):
        yield tag("p", to_sentence(words))


def _seen(seen: Observation, at: str) -> Iterator[Markup]:
    if seen.python:
        parts = [
            (f"{_ACTIVITIES[one.activity]}: {one.share:.0%}", one.share)
            for one in seen.python.shares
        ]
        yield captioned(
            f"Main thread of pid {seen.python.pid}: shares of {seen.python.looks:,} samples",
            divided(parts),
        )
    rows = [
        (
            str(one.pid),
            f"{one.cpu:.2f}",
            f"{one.kernel:.2f}",
            "?" if one.queued is None else f"{one.queued:.2f}",
            cpulist.show(one.cpus),
            "" if one.intra is None else f"{one.intra}x{one.inter}",
            f"{one.resident / 2**20:,.0f}",
            Key(one.command),
        )
        for one in seen.processes
    ]
    heads = (
        ">pid",
        ">cores used",
        ">in the kernel",
        ">cores waited for",
        "CPUs",
        "threads",
        ">MiB",
        "command",
    )
    yield html(Table("processes of the job", columns(*heads), rows), f"{at}-processes-table")
