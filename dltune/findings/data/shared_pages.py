"""Processes that fault on the same pages of a file."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import count, file_name, size
from dltune.findings.data.waits import storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# processes that touch each page
SAME_PAGES = 1.5


@rule(
    "shared-pages",
    "data",
    summary="Several processes fault on the same pages of a file.",
    fix="Let one process per node read, or let each process read only its own records.",
    order=2,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    watch = evidence.watch
    for file in watch.files if watch else ():
        readers = [p for p in watch.processes if p.pid in file.processes] if watch else []
        if file.shared is None or file.shared < SAME_PAGES or len(readers) < 2:
            continue
        switches = sum(t.voluntary for p in readers for t in p.threads)
        yield Finding(
            title=f"{len(readers)} processes fault on the same pages of {file_name(file.path)}",
            evidence=f"{file.shared:.1f} processes faulted on each page on average; "
            f"{count(switches)} voluntary context switches for {size(file.asked or 0)} used and "
            f"{size(file.storage_bytes or 0)} from storage",
            fix="let one process per node read and pass the records on, or let each process read "
            "its own records by exact offset (dltune lmdb index)"
            if file.format == "lmdb"
            else "give each process its own part of the file, or let one process read for all",
            share=storage_share(evidence),
            confidence="measured",
        )
