"""A job in which no data file was seen."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data import slow_store
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import size


@rule(
    "no-data-file",
    "data",
    summary="The job opened no data file that dltune can see.",
    fix="Watch the job as its own user or as root.",
    order=5,
)
def find(seen: Seen) -> Iterator[Finding]:
    watch = seen.io.watch if seen.io else None
    if watch is None or watch.files or any(slow_store.find(seen)):
        return
    denied = any(process.read is None and not process.ended for process in watch.processes)
    evidence = [f"{len(watch.processes)} processes were watched for {watch.seconds:.0f} s"]
    if denied:
        evidence.append("some of them belong to another user")
    most = max(watch.processes, key=lambda process: process.read or 0, default=None)
    if most and most.read:
        # the kernel counts those children with it that it has waited for
        evidence.append(
            f"pid {most.pid} and its ended children read {size(most.read)} in {most.read_calls:,} "
            "read "
            "calls, from pipes or from files that are under 1 MiB or open only briefly"
        )
    yield Finding(
        title="no data file was found",
        evidence="; ".join(evidence),
        fix="run dltune as the job's user or as root" if denied else None,
    )
