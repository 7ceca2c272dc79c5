"""Reading that does not slow down the job."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import share, size
from dltune.findings.data import (
    amplified_reading,
    many_sleeps,
    missing_read_ahead,
    shared_pages,
    shuffled_reading,
    slow_store,
    small_reads,
)
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

MIB = 1 << 20
# rules that report slow reading
_PROBLEMS = (
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
def find(evidence: Evidence) -> Iterator[Finding]:
    watch = evidence.watch
    if watch is None or not watch.files or any(any(rule.find(evidence)) for rule in _PROBLEMS):
        return
    nbytes = sum(file.storage_bytes or 0 for file in watch.files)
    longest = max((t.waiting / t.seconds for _, t in watch.readers), default=0.0)
    is_counted = any(file.storage_bytes is not None for file in watch.files)
    yield Finding(
        title="reading does not slow down the job: the data came from the page cache"
        if is_counted and nbytes < MIB
        else "reading does not slow down the job",
        evidence=f"{size(nbytes)} from storage in {watch.seconds:.0f} s; the thread that waited "
        f"most waited for {share(longest)} of its time",
        confidence="measured",
    )
