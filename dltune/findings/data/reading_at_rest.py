"""Reading that holds nothing up."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data import (
    amplified_reading,
    many_sleeps,
    missing_read_ahead,
    shared_pages,
    shuffled_reading,
    slow_store,
    small_reads,
)
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import share, size

MIB = 1 << 20
# what keeps it from being said
_OTHERWISE = (
    amplified_reading,
    many_sleeps,
    missing_read_ahead,
    shared_pages,
    shuffled_reading,
    slow_store,
    small_reads,
)


@rule(
    "reading-at-rest",
    "data",
    summary="Reading data does not slow down the job.",
    fix="Nothing has to be done.",
    order=5,
)
def find(seen: Seen) -> Iterator[Finding]:
    watch = seen.io.watch if seen.io else None
    if watch is None or not watch.files or any(any(rule.find(seen)) for rule in _OTHERWISE):
        return
    came = sum(file.storage_bytes or 0 for file in watch.files)
    most = max((t.waiting / t.seconds for _, t in watch.readers), default=0.0)
    counted = any(file.storage_bytes is not None for file in watch.files)
    yield Finding(
        title="reading does not slow down the job: the data came from the page cache"
        if counted and came < MIB
        else "reading does not slow down the job",
        evidence=f"{size(came)} from storage in {watch.seconds:.0f} s; the thread that waited most "
        f"waited for {share(most)} of its time",
        confidence="measured",
    )
