"""A job in which no data file was seen."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data import slow_store
from dltune.findings.seen import Seen


def find(seen: Seen) -> Iterator[Finding]:
    watch = seen.io.watch if seen.io else None
    if watch is None or watch.files or any(slow_store.find(seen)):
        return
    denied = any(process.read is None and not process.ended for process in watch.processes)
    yield Finding(
        "no-data-file",
        "no data file was seen",
        f"{len(watch.processes)} processes were watched for {watch.seconds:.0f} s"
        + ("; not all of them may be looked into" if denied else ""),
        "watch as the job's user or as root" if denied else None,
    )
