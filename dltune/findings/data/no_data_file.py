"""A job without a visible data file."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import size
from dltune.findings.data import slow_store
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding


@rule(
    "no-data-file",
    "data",
    summary="The job opened no data file that dltune can see.",
    fix="Watch the job as its own user or as root.",
    order=5,
    is_limitation=True,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    watch = evidence.watch
    if watch is None or watch.files or any(slow_store.find(evidence)):
        return
    denied = any(process.read is None and not process.ended for process in watch.processes)
    details = [f"{len(watch.processes)} processes were watched for {watch.seconds:.0f} s"]
    if denied:
        details.append("some of them belong to another user")
    largest = max(watch.processes, key=lambda process: process.read or 0, default=None)
    if largest and largest.read:
        # the kernel adds the counts of children for which the process has waited
        details.append(
            f"pid {largest.pid} and its ended children read {size(largest.read)} in "
            f"{largest.read_calls:,} read calls, from pipes or from files that are under 1 MiB or "
            "open only briefly"
        )
    yield Finding(
        title="no data file was found",
        evidence="; ".join(details),
        fix="run dltune as the job's user or as root" if denied else None,
    )
