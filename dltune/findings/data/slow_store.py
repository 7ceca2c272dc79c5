"""A thread that waits for storage."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data.waits import longest, storage_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import share

# a thread that waits for storage less than this of its time is not held up by it; a job that waits
# more than GRAVE is
LITTLE, GRAVE = 0.02, 0.10
# at a thread, for an estimate
LOOKS = 20


@rule(
    "slow-store",
    "data",
    summary="A thread waits for storage.",
    fix="Read ahead; the findings about the job's files say how.",
)
def find(seen: Seen) -> Iterator[Finding]:
    watch = seen.io.watch if seen.io else None
    found = longest(seen)
    if watch is None or found is None:
        return
    process, thread = found
    waits = thread.waiting / thread.seconds
    if waits < LITTLE or thread.looks < LOOKS:
        return
    line = watch.lines[0] if watch.lines else None
    at = f"; Python is at {line.where} in {share(line.share)} of samples" if line else ""
    asleep = (
        f", asleep for {share(thread.sleep_share)} of its reading time"
        if thread.sleep_share
        else ""
    )
    yield Finding(
        title=f"a thread of pid {process.pid} waits for storage for {share(waits)} of its time",
        evidence=f"thread {thread.tid} ({thread.name}): {thread.waiting:.1f} of "
        f"{thread.seconds:.1f} s"
        f"{asleep}; {thread.voluntary / thread.seconds:.0f} voluntary switches/s{at}",
        fix="read ahead: the findings about the job's files say how; dltune io-report --file "
        "measures "
        "the limit of the storage"
        if waits >= GRAVE
        else None,
        share=storage_share(seen) if waits >= GRAVE else None,
        confidence="measured",
    )
