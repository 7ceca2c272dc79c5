"""Horovod's ranks: what follows, the threads of each, cycles, and Horovod's own timeline."""

from __future__ import annotations

import shlex

from dltune.documents.horovod import Horovod, Rank, Role, Timeline, load
from dltune.findings.finding_text import to_sentence
from dltune.horovod import tables
from dltune.report.charts.marks import captioned, divided
from dltune.report.markup import Markup, joined, tag
from dltune.report.section import Context, Loaded, Section, Shown, findings
from dltune.report.table import html
from dltune.views import Headline

__all__ = ["load", "show"]

# the parts of a rank's time, in the order of the picture
ROLES: tuple[Role, ...] = ("background", "helper", "compute", "input", "python", "other")
# in the tables: threads of all ranks and at least of each, tensors
THREADS, LEAST, TENSORS = 200, 8, 200


def show(loaded: Loaded, _: Context) -> Shown:
    report = loaded.document
    assert isinstance(report, Horovod)
    at = loaded.prefix
    found = findings(report.findings)
    sections = [Section(f"{at}-findings", "Horovod", found)]
    if report.ranks:
        sections.append(Section(f"{at}-ranks", "Ranks and their threads", _ranks(report, at)))
    if (cycles := tables.cycles(report)).rows:
        sections.append(Section(f"{at}-cycles", "Cycles", html(cycles, f"{at}-cycles-table")))
    if report.timeline:
        sections.append(Section(f"{at}-timeline", "Timeline", _timeline(report.timeline, at)))
    return Shown(
        title=f"Horovod {loaded.path.name}",
        head=[
            *([("command", shlex.join(report.command))] if report.command else []),
            *((host, f"{cores} cores") for host, cores in report.cores.items()),
            ("made", f"{report.created}, dltune {report.dltune}"),
        ],
        sections=sections,
        headlines=[Headline(2, to_sentence(finding.title)) for finding in report.findings[:1]],
        remarks=[
            *(["This report is partial: the watch was interrupted."] if report.partial else []),
            *(f"Rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen),
        ],
    )


def _ranks(report: Horovod, at: str) -> Markup:
    most = max(rank.cpu for rank in report.ranks)
    pictures = [
        captioned(f"Rank {rank.rank}: {rank.cpu:.2f} cores", divided(_parts(rank, max(most, 1e-9))))
        for rank in report.ranks
    ]
    threads = tables.threads(report, max(LEAST, THREADS // len(report.ranks)))
    drawn = [html(tables.ranks(report), f"{at}-ranks-table"), html(threads, f"{at}-threads-table")]
    return joined([*pictures, *drawn])


def _parts(rank: Rank, most: float) -> list[tuple[str, float]]:
    """Shares of the busiest rank's time; what ended threads took between looks is the rest."""
    parts = []
    for role in ROLES:
        cpu = sum(thread.cpu for thread in rank.threads if thread.role == role)
        if cpu > 0:
            parts.append((f"{role}: {cpu:.0%} of a core", cpu / most))
    return parts


def _timeline(timeline: Timeline, at: str) -> Markup:
    body = [tag("p", line) for line in tables.facts(timeline)]
    if timeline.late:
        body.append(html(tables.late(timeline), f"{at}-late-table"))
    if timeline.tensors:
        body.append(html(tables.tensors(timeline), f"{at}-tensors-table", TENSORS))
    return joined(body)
