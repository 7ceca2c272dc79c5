"""Horovod's ranks: what follows, the threads of each, cycles, and Horovod's own timeline."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from dltune.documents.horovod import Horovod, Rank, Role, Timeline
from dltune.findings.finding_text import to_sentence
from dltune.horovod import tables
from dltune.tables import Shares
from dltune.views import Context, Findings, Headline, Piece, Section, View

# the parts of a rank's time, in the order of the picture
ROLES: tuple[Role, ...] = ("background", "helper", "compute", "input", "python", "other")
# in the tables: threads of all ranks and at least of each, tensors
THREADS, LEAST, TENSORS = 200, 8, 200


def view(report: Horovod, _: Context) -> View:
    sections = [Section("findings", "Horovod", [Findings(report.findings)])]
    if report.ranks:
        sections.append(Section("ranks", "Ranks and their threads", list(_ranks(report))))
    if (cycles := tables.cycles(report)).rows:
        sections.append(Section("cycles", "Cycles", [replace(cycles, name="cycles-table")]))
    if report.timeline:
        sections.append(Section("timeline", "Timeline", list(_timeline(report.timeline))))
    return View(
        title="Horovod",
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


def _ranks(report: Horovod) -> Iterator[Piece]:
    most = max(rank.cpu for rank in report.ranks)
    for rank in report.ranks:
        title = f"Rank {rank.rank}: {rank.cpu:.2f} cores"
        yield Shares(title, _parts(rank, max(most, 1e-9)))
    yield replace(tables.ranks(report), name="ranks-table")
    threads = tables.threads(report, max(LEAST, THREADS // len(report.ranks)))
    yield replace(threads, name="threads-table")


def _parts(rank: Rank, most: float) -> list[tuple[str, float]]:
    """Shares of the busiest rank's time; what ended threads took between looks is the rest."""
    parts = []
    for role in ROLES:
        cpu = sum(thread.cpu for thread in rank.threads if thread.role == role)
        if cpu > 0:
            parts.append((f"{role}: {cpu:.0%} of a core", cpu / most))
    return parts


def _timeline(timeline: Timeline) -> Iterator[Piece]:
    yield from tables.facts(timeline)
    if timeline.late:
        yield replace(tables.late(timeline), name="late-table")
    if timeline.tensors:
        yield replace(tables.tensors(timeline), name="tensors-table", most_on_page=TENSORS)
