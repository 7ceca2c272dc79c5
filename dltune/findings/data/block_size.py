"""How much faster larger blocks are read (Fig. 5.1)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data.exact_offsets import WORTH
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import rate, size


@rule(
    "block-size",
    "data",
    summary="Larger blocks are read faster (thesis, Fig. 5.1).",
    fix="Read larger blocks: join neighbouring records into one read.",
    order=8,
)
def find(seen: Seen) -> Iterator[Finding]:
    experiment = seen.io.experiment if seen.io else None
    blocks = experiment.blocks if experiment else ()
    straight = [b for b in blocks if experiment and b.method == experiment.ceiling.method] or [
        b for b in blocks if b.method != "mmap"
    ]
    if not straight:
        return
    small, best = straight[0], max(straight, key=lambda b: b.throughput.median)
    gain = best.throughput.median / max(1.0, small.throughput.median)
    if gain < WORTH:
        return
    mapped = max((b.throughput.median for b in blocks if b.method == "mmap"), default=None)
    beside = f"; a mapping reaches at most {rate(mapped)}, at any block size" if mapped else ""
    yield Finding(
        title=f"blocks of {size(best.block)} are read {gain:.1f} times as fast as blocks of "
        f"{size(small.block)}",
        evidence=f"{best.method}: {rate(best.throughput.median)} against "
        f"{rate(small.throughput.median)}"
        f"{beside}",
        fix=f"read {size(best.block)} at a time: join neighbouring records into one read",
        confidence="measured",
    )
