"""More readers of one file: their rate, switches and sleep (thesis, Fig. 3.4)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import count, rate, share
from dltune.findings.data.exact_offsets import MIN_SPEEDUP
from dltune.findings.data.mapped_reading import NEAR
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding


@rule(
    "more-readers",
    "data",
    summary="More readers of one file bring context switches and sleep, but little throughput "
    "(thesis, Fig. 3.4).",
    fix="Let one process per node read for all, or let each process read its own records by exact "
    "offset.",
    order=7,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    experiment = evidence.experiment
    strided = experiment.strided if experiment else ()
    runs = [r for r in strided if r.walk == strided[0].walk and r.method == "mmap"]
    if experiment is None or not runs:
        return
    single, many = min(runs, key=lambda r: r.readers), max(runs, key=lambda r: r.readers)
    if many.readers == single.readers:
        return
    speedup = many.throughput.median / max(1.0, single.throughput.median)
    is_full = single.throughput.median >= NEAR * experiment.ceiling.throughput.median
    more = (
        many.switches.median / max(1e-9, single.switches.median) if single.switches.median else None
    )
    times = f", {more:.1f} times as many" if more is not None else ""
    title, fix = _compare(single.readers, many.readers, speedup, is_full)
    yield Finding(
        title=title,
        evidence=f"{rate(single.throughput.median)} with {single.readers}, "
        f"{rate(many.throughput.median)} with {many.readers}; voluntary switches per MiB of "
        f"records {count(single.switches.median)} and {count(many.switches.median)}{times}; asleep "
        f"{share(single.sleep_share.median)} and {share(many.sleep_share.median)} of the time",
        fix=fix,
        confidence="measured",
    )


def _compare(few: int, many: int, speedup: float, is_full: bool) -> tuple[str, str | None]:
    """Return the title and the fix. `is_full`: one reader reaches the storage's rate."""
    if speedup >= MIN_SPEEDUP:
        return f"{many} strided readers are {speedup:.1f} times as fast as {few}", None
    if is_full:
        return (
            f"one reader reaches the storage's rate; {many} strided readers only sleep and wake up "
            "more often",
            "let one process per node read, and pass the records to the others",
        )
    return (
        f"{many} strided readers are no faster than {few}: they fault on the "
        "same pages and wait for the same reads",
        "let one process per node read for all, in large blocks, or let each read its own "
        "records by exact offset",
    )
