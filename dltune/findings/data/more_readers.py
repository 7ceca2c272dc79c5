"""What more readers of one file bring: switches and sleep against their number (Fig. 3.4)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data.exact_offsets import WORTH
from dltune.findings.data.mapped_reading import NEAR
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import count, rate, share


@rule(
    "more-readers",
    "data",
    summary="More readers of one file bring context switches and sleep, but little throughput "
    "(thesis, Fig. 3.4).",
    fix="Let one process per node read for all, or let each process read its own records by exact "
    "offset.",
    order=7,
)
def find(seen: Seen) -> Iterator[Finding]:
    experiment = seen.io.experiment if seen.io else None
    strided = experiment.strided if experiment else ()
    runs = [r for r in strided if r.walk == strided[0].walk and r.method == "mmap"]
    if experiment is None or not runs:
        return
    one, many = min(runs, key=lambda r: r.readers), max(runs, key=lambda r: r.readers)
    if many.readers == one.readers:
        return
    gain = many.throughput.median / max(1.0, one.throughput.median)
    full = one.throughput.median >= NEAR * experiment.ceiling.throughput.median
    more = many.switches.median / max(1e-9, one.switches.median) if one.switches.median else None
    times = f", {more:.1f} times as many" if more is not None else ""
    claim, cure = _told(one.readers, many.readers, gain, full)
    yield Finding(
        title=claim,
        evidence=f"{rate(one.throughput.median)} with {one.readers}, "
        f"{rate(many.throughput.median)} with "
        f"{many.readers}; voluntary switches per MiB of records {count(one.switches.median)} and "
        f"{count(many.switches.median)}{times}; asleep {share(one.sleep_share.median)} and "
        f"{share(many.sleep_share.median)} of the time",
        fix=cure,
        confidence="measured",
    )


def _told(one: int, many: int, gain: float, full: bool) -> tuple[str, str | None]:
    """Return the title and the fix. `full`: one reader reaches the storage's rate."""
    if gain >= WORTH:
        return f"{many} strided readers are {gain:.1f} times as fast as {one}", None
    if full:
        return (
            f"one reader reaches the storage's rate; {many} strided readers only sleep and wake up "
            "more often",
            "let one process per node read, and pass the records to the others",
        )
    return (
        f"{many} strided readers are no faster than {one}: they fault on the "
        "same pages and wait for the same reads",
        "let one process per node read for all, in large blocks, or let each read its own "
        "records by exact offset",
    )
