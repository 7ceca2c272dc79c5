"""Threads that go to sleep often for little data."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data.waits import storage_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import count, size

MIB = 1 << 20
# voluntary switches for a MiB
MANY_SWITCHES = 40


@rule(
    "many-sleeps",
    "data",
    summary="Threads sleep often for little data.",
    fix="Read more at a time: larger reads, or hints some batches ahead.",
    order=4,
)
def find(seen: Seen) -> Iterator[Finding]:
    watch = seen.io.watch if seen.io else None
    if watch is None:
        return
    asked = sum(file.asked or 0 for file in watch.files)
    reading = [(p, t) for p, t in watch.readers if t.sleep_share is not None]
    switches = sum(thread.voluntary for _, thread in reading)
    if asked >= MIB and switches / (asked / MIB) >= MANY_SWITCHES:
        pids = {process.pid for process, _ in reading}
        yield Finding(
            title=f"reading threads sleep {count(switches / (asked / MIB))} times for each MiB "
            "that they "
            "use",
            evidence=f"{count(switches)} voluntary switches of {len(reading)} threads in "
            f"{len(pids)} of "
            f"{len(watch.processes)} processes, {size(asked)} used",
            fix="read more at a time: larger reads, or hints some batches ahead",
            share=storage_share(seen),
            confidence="measured",
        )
