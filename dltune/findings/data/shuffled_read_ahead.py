"""Read-ahead that speeds up or slows down a reader of shuffled records."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import rate, size
from dltune.findings.data.exact_offsets import MIN_SPEEDUP
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding


@rule(
    "shuffled-read-ahead",
    "data",
    summary="Read-ahead speeds up or slows down shuffled reading of this file.",
    fix="Open the file with or without read-ahead, whichever is faster.",
    order=7,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    shuffled = evidence.experiment.shuffled if evidence.experiment else ()
    mapped = {r.advised: r for r in shuffled if r.method == "mmap" and r.ahead == 0}
    if evidence.io is None or len(mapped) < 2:
        return
    normal, random = mapped[False], mapped[True]
    ratio = random.throughput.median / max(1.0, normal.throughput.median)
    times = max(ratio, 1 / ratio if ratio else 1.0)
    if times >= MIN_SPEEDUP:
        faster, setting = (
            ("without", "readahead=False in py-lmdb") if ratio > 1 else ("with", "readahead=True")
        )
        place = evidence.io.storage[0] if evidence.io.storage else None
        ahead = f" of {size(place.read_ahead)}" if place and place.read_ahead else ""
        yield Finding(
            title=f"shuffled records are read {times:.1f} times as fast {faster} read-ahead{ahead}",
            evidence=f"{rate(normal.throughput.median)} with, {rate(random.throughput.median)} "
            "without",
            fix=f"open the file {faster} read-ahead: {setting}, or MADV_NORMAL and MADV_RANDOM "
            "elsewhere",
            confidence="measured",
        )
