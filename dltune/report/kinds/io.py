"""How training data was read: what was found, the files, the threads, or a file in every way."""

from __future__ import annotations

from dltune.documents.io import Io, load
from dltune.findings.finding_text import to_sentence
from dltune.io.report import tables
from dltune.io.report.shown import ceiling, place
from dltune.report.markup import joined, tag
from dltune.report.section import Context, Loaded, Section, Shown, findings
from dltune.report.table import html
from dltune.views import Headline

__all__ = ["load", "show"]

ROWS = 100  # of a table


def show(loaded: Loaded, _: Context) -> Shown:
    io = loaded.document
    assert isinstance(io, Io)
    at = loaded.prefix
    found = findings(io.findings)
    sections = [Section(f"{at}-findings", "Reading data", found)]
    if watch := io.watch:
        body = html(tables.files(io, watch), f"{at}-files-table")
        sections.append(Section(f"{at}-files", "Data files", body))
        waiting = [
            html(table, f"{at}-{name}-table", ROWS)
            for name, table in (
                ("threads", tables.threads(watch)),
                ("waits", tables.lines(watch)),
                ("pressure", tables.pressure(watch)),
            )
            if table.rows
        ]
        if waiting:
            sections.append(Section(f"{at}-threads", "Waiting", joined(waiting)))
    if io.experiment:
        ways = [tag("p", to_sentence(ceiling(io.experiment)))]
        for number, table in enumerate(tables.ways(io.experiment)):
            ways.append(html(table, f"{at}-ways{number}-table"))
        sections.append(Section(f"{at}-ways", "Ways to read the file", joined(ways)))
    return Shown(
        title=f"I/O {loaded.path.name}",
        head=[
            ("subject", io.subject),
            *((storage.mount, place(storage)) for storage in io.storage),
            ("made", f"{io.created}, dltune {io.dltune}"),
        ],
        sections=sections,
        # a sentence of its own beside those on ops: reading is another cause
        headlines=[Headline(2, to_sentence(finding.title)) for finding in io.findings[:1]],
        remarks=[
            *([] if io.partial is None else [f"This report is partial: {io.partial}."]),
            *io.unseen,
        ],
    )
