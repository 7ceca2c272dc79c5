"""A thread that waits for storage."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import share
from dltune.findings.data.waits import longest_wait, storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# share of a thread's time in which it waits for storage: below the first share, storage does not
# slow it down; from the second share on, the wait has a cost
LITTLE, GRAVE = 0.02, 0.10
# samples of a thread, for an estimate
MIN_SAMPLES = 20


@rule(
    "slow-store",
    "data",
    summary="A thread waits for storage.",
    fix="Read ahead; the findings about the job's files say how.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    watch = evidence.watch
    longest = longest_wait(evidence)
    if watch is None or longest is None:
        return
    process, thread = longest
    waits = thread.waiting / thread.seconds
    if waits < LITTLE or thread.looks < MIN_SAMPLES:
        return
    line = watch.lines[0] if watch.lines else None
    location = f"; Python is at {line.where} in {share(line.share)} of samples" if line else ""
    asleep = (
        f", asleep for {share(thread.sleep_share)} of its reading time"
        if thread.sleep_share
        else ""
    )
    yield Finding(
        title=f"a thread of pid {process.pid} waits for storage for {share(waits)} of its time",
        evidence=f"thread {thread.tid} ({thread.name}): {thread.waiting:.1f} of "
        f"{thread.seconds:.1f} s"
        f"{asleep}; {thread.voluntary / thread.seconds:.0f} voluntary switches/s{location}",
        fix="read ahead: the findings about the job's files say how; dltune io-report --file "
        "measures the limit of the storage"
        if waits >= GRAVE
        else None,
        share=storage_share(evidence) if waits >= GRAVE else None,
        confidence="measured",
    )
