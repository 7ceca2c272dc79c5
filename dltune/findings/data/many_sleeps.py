"""Threads that sleep often for little data."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import count, size
from dltune.findings.data.waits import storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

MIB = 1 << 20
# voluntary switches per MiB
MANY_SWITCHES = 40


@rule(
    "many-sleeps",
    "data",
    summary="Threads sleep often for little data.",
    fix="Read more at a time: larger reads, or hints some batches ahead.",
    order=4,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    watch = evidence.watch
    if watch is None:
        return
    used = sum(file.asked or 0 for file in watch.files)
    reading = [(p, t) for p, t in watch.readers if t.sleep_share is not None]
    switches = sum(thread.voluntary for _, thread in reading)
    if used >= MIB and switches / (used / MIB) >= MANY_SWITCHES:
        pids = {process.pid for process, _ in reading}
        yield Finding(
            title=f"reading threads sleep {count(switches / (used / MIB))} times for each MiB that "
            "they use",
            evidence=f"{count(switches)} voluntary switches of {len(reading)} threads in "
            f"{len(pids)} of {len(watch.processes)} processes, {size(used)} used",
            fix="read more at a time: larger reads, or hints some batches ahead",
            share=storage_share(evidence),
            confidence="measured",
        )
