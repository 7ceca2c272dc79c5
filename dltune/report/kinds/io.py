"""How training data was read: what was found, the files, the threads, or a file in every way."""

from __future__ import annotations

from dataclasses import replace

from dltune.documents.io import Io
from dltune.findings.finding_text import to_sentence
from dltune.io.report import tables
from dltune.io.report.shown import ceiling, place
from dltune.views import Context, Findings, Headline, Section, View

ROWS = 100  # of a table


def view(io: Io, _: Context) -> View:
    sections = [Section("findings", "Reading data", [Findings(io.findings)])]
    if watch := io.watch:
        files = replace(tables.files(io, watch), name="files-table")
        sections.append(Section("files", "Data files", [files]))
        waiting = [
            replace(table, name=f"{name}-table", most_on_page=ROWS)
            for name, table in (
                ("threads", tables.threads(watch)),
                ("waits", tables.lines(watch)),
                ("pressure", tables.pressure(watch)),
            )
            if table.rows
        ]
        sections.append(Section("threads", "Waiting", waiting))
    if io.experiment:
        ways = [
            replace(table, name=f"ways{number}-table")
            for number, table in enumerate(tables.ways(io.experiment))
        ]
        body = [to_sentence(ceiling(io.experiment)), *ways]
        sections.append(Section("ways", "Ways to read the file", body))
    return View(
        title="I/O",
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
