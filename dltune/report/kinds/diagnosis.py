"""A diagnosis: the findings in order of cost, and the observation of the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import Key, Shares, Table, columns
from dltune.findings.diagnosis import NO_CAUSE, capitalize, format_limit, suggest_next, to_sentence
from dltune.schemas.diagnosis import Diagnosis, Observation
from dltune.system import kernel_files
from dltune.views import (
    Context,
    Findings,
    Headline,
    Piece,
    Section,
    Unobserved,
    View,
    on_page,
    on_terminal,
)

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


def view(diagnosis: Diagnosis, _: Context) -> View:
    sections = [Section("findings", "Diagnosis", list(_findings(diagnosis)))]
    if seen := diagnosis.observation:
        sections.append(Section("seen", "Observation of the job", list(_seen(seen))))
    first = diagnosis.findings[0].title if diagnosis.findings else NO_CAUSE
    return View(
        title="Diagnosis",
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


def _findings(diagnosis: Diagnosis) -> Iterator[Piece]:
    if diagnosis.step:
        yield to_sentence(format_limit(diagnosis.step))
    elif diagnosis.no_step:
        text = capitalize(f"no step was measured: {diagnosis.no_step}")
        yield from on_page(to_sentence(text))
        yield from on_terminal(text)
    if diagnosis.partial:
        yield from on_terminal(f"The diagnosis is incomplete: {diagnosis.partial}")
    if diagnosis.findings:
        yield Findings(diagnosis.findings, ranked=True)
    else:
        yield to_sentence(NO_CAUSE)
    if words := suggest_next(diagnosis):
        yield from on_page(to_sentence(words))
    if sum(finding.share or 0.0 for finding in diagnosis.findings) > 1:
        overlap = "Costs overlap: they do not add up, and fixing one can change another."
        yield from on_terminal("", overlap)
    yield from on_terminal(Unobserved(diagnosis.unseen))


def _seen(seen: Observation) -> Iterator[Piece]:
    if seen.python:
        title = f"Main thread of pid {seen.python.pid}: shares of {seen.python.looks:,} samples"
        shares = seen.python.shares
        parts = [(f"{_ACTIVITIES[each.activity]}: {each.share:.0%}", each.share) for each in shares]
        yield Shares(title, parts)
    rows = [
        (
            str(one.pid),
            f"{one.cpu:.2f}",
            f"{one.kernel:.2f}",
            "?" if one.queued is None else f"{one.queued:.2f}",
            kernel_files.format_cpulist(one.cpus),
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
    table = Table("processes of the job", columns(*heads), rows, name="processes-table")
    yield from on_page(table)
